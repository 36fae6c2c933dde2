"""Trained demo models score the same in an environment that has neither PyTorch nor OpenMMLab."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from mmengine.config import Config

import export as tool
import mmlisa
from helpers.bare import make_environment
from helpers.exported import odd_images
from helpers.training import ROOT
from mmlisa.datasets.demo import make_demo
from mmlisa.deploy import runtime
from mmlisa.deploy.inference import exported_config, predict_pictures
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8, and say so"),
]
# Iterations, the validation images, and metrics with the value that they must exceed.
TRAININGS = {
    "mask_rcnn_hylisanet": (70, "data/demo/val/*", {"coco/bbox_mAP": 0.1, "coco/segm_mAP": 0.1}),
    "semantic_fpn_hylisanet": (120, "data/demo/ade/images/validation/*", {"mIoU": 15}),
    "classifier_hylisanet": (60, "data/demo/cls/val/*/*", {"accuracy/top1": 40}),
}
PREDICT = """
import importlib.util, sys
import numpy as np
import runtime

installed = [name for name in ("torch", "mmengine", "mmcv", "mmdet", "cv2", "mmlisa") if importlib.util.find_spec(name)]
assert not installed, installed
file, out, *images = sys.argv[1:]
model = runtime.load(file)
found = {}
for image in images:
    for field, value in vars(model.predict(image, 0.0)).items():
        if value is not None:
            found[f"{field} {image}"] = value
np.savez(out, **found)
"""


class Trained(NamedTuple):
    cfg: Config
    checkpoint: Path
    file: Path  # exported
    images: str
    least: dict[str, float]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The current folder, with demo data and a bare environment."""
    path = tmp_path_factory.mktemp("exported")
    make_demo(path / "data" / "demo", num_images={"train": 120, "val": 24}, progress=False)
    make_environment(path / "bare")
    (path / "code").mkdir()
    shutil.copy(runtime.__file__, path / "code" / "runtime.py")
    (path / "code" / "predict.py").write_text(PREDICT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


@pytest.fixture(scope="module", params=TRAININGS)
def trained(request, folder) -> Trained:
    """A short training by the tool, and its best checkpoint, exported by the tool."""
    name, (iterations, images, least) = request.param, TRAININGS[request.param]
    work_dir = folder / name
    options = [f"train_cfg.max_iters={iterations}", f"train_cfg.val_interval={iterations}"]
    options.append(f"param_scheduler.1.end={iterations}")
    size = ["--size", "64", "64"]
    if not name.startswith("classifier"):  # whose images all have this size
        # One size, whose export takes seconds; tests/deploy/test_whole_models.py is about free sizes.
        options += [f"{split}_dataloader.dataset.pipeline.1.keep_ratio=False" for split in ("val", "test")]
        size = []
    command = [sys.executable, str(ROOT / "tools" / "train.py"), f"{name}_demo.py", "--work-dir", str(work_dir)]
    done = subprocess.run([*command, "--cfg-options", *options], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    (checkpoint,) = work_dir.glob("best_*.pth")
    config, file = work_dir / f"{name}_demo.py", work_dir / "model.onnx"
    tool.main(tool.parse_args([str(config), str(checkpoint), str(file), *size]))
    return Trained(load_config(str(config), work_dir=str(work_dir)), checkpoint, file, images, least)


def predict_bare(folder: Path, file: Path, images: list[str]) -> dict[str, runtime.Prediction]:
    """Predictions of a process of the bare environment, by image."""
    command = [folder / "bare" / "bin" / "python", folder / "code" / "predict.py", file, folder / "found.npz", *images]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, np.ndarray]] = {image: {} for image in images}
    with np.load(folder / "found.npz") as arrays:
        for key, value in arrays.items():
            field, image = key.split(" ", 1)
            found[image][field] = value
    return {image: runtime.Prediction(**fields) for image, fields in found.items()}


def test_metrics_equal_those_of_pytorch(trained, folder):
    cfg = trained.cfg.copy()
    cfg.load_from = str(trained.checkpoint)
    expected = build_runner(cfg, 1.0, verbose=False).test()
    runner = build_runner(exported_config(trained.cfg, trained.file), 1.0, verbose=False)
    dataset = runner.build_dataloader(trained.cfg.test_dataloader).dataset
    images = [dataset.get_data_info(index)["img_path"] for index in range(len(dataset))]
    recorded = predict_bare(folder, trained.file, images)
    runner.model.exported.predict = lambda image, threshold: recorded[str(image)]
    found = runner.test()
    assert found.keys() == expected.keys()
    scale = 1 if "coco/bbox_mAP" in trained.least else 100
    for metric, least in trained.least.items():
        assert expected[metric] > least
        assert found[metric] == pytest.approx(expected[metric], abs=0.002 * scale), metric
        print(f"{metric}: {expected[metric]:.4f} in PyTorch, {found[metric]:.4f} without it")


def test_a_checkpoint_predicts_as_its_file(trained, folder):
    """By the one line that the documentation shows."""
    images = [str(path) for path in sorted(folder.glob(trained.images))[:3]]
    assert len(images) == 3
    recorded = predict_bare(folder, trained.file, images)
    loaded = mmlisa.load(trained.checkpoint)
    assert loaded.classes == runtime.load(trained.file).classes
    for image in images:
        found, expected = recorded[image], loaded.predict(image, 0.0)
        if found.boxes is not None:
            assert len(expected.boxes) > 10
            assert largest_distance(found.boxes, found.labels, expected.boxes, expected.labels) < 0.1
        elif found.segmentation is not None:
            assert (found.segmentation == expected.segmentation).mean() > 0.999
        else:
            np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-4)


def largest_distance(boxes, labels, others, other_labels) -> float:
    """Of any box to the nearest other one of its label, in pixels."""
    assert len(boxes) == len(others)
    distance = np.abs(boxes[:, None] - others).max(axis=2) + 1e3 * (labels[:, None] != other_labels)
    return max(distance.min(axis=0).max(), distance.min(axis=1).max())


def test_boxes_on_odd_images_equal_those_of_infer(trained, folder, tmp_path):
    if "coco/bbox_mAP" not in trained.least:
        pytest.skip("not a detector")
    images = [str(path) for path in odd_images(tmp_path)]
    recorded = predict_bare(folder, trained.file, images)
    count = 0
    options = dict(images=images, out_dir=tmp_path / "out", score_threshold=0.0)
    for image, one in zip(images, predict_pictures(trained.cfg, str(trained.checkpoint), **options), strict=True):
        assert one.target, one.summary
        found, instances = recorded[image], one.result["instances"]
        count += len(instances)
        boxes = np.array([instance["bbox"] for instance in instances]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        if instances:
            labels = np.array([instance["category_id"] for instance in instances])
            assert largest_distance(found.boxes, found.labels, boxes, labels) < 0.1, image
    assert count > 100
