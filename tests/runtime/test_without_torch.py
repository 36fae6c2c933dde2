"""A trained detector scores the same in an environment that has neither PyTorch nor OpenMMLab."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from helpers.training import ROOT
from mmlisa import cli, runtime
from mmlisa.datasets.demo import make_demo
from mmlisa.inference.exported import exported_config
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8"),
]
PREDICT = """
import importlib.util, json, sys
import runtime

installed = [name for name in ("torch", "mmengine", "mmcv", "mmdet", "mmlisa") if importlib.util.find_spec(name)]
assert not installed, installed
model = runtime.load(sys.argv[1])
found = {image: vars(model.predict(image, 0.0)) for image in sys.argv[2:]}
print(json.dumps({image: {k: v.tolist() for k, v in each.items() if v is not None} for image, each in found.items()}))
"""


PACKAGES = ("numpy", "pillow", "onnxruntime")


def make_environment(folder: Path) -> Path:
    """Make an environment with the packages of the small runtime alone, as links to those of this one; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in PACKAGES:
        installed = distribution(package)
        for name in {file.parts[0] for file in installed.files} - {"..", "__pycache__"}:
            (site / name).symlink_to(installed.locate_file(name))
    # OpenCV has several distributions; its wheels keep their libraries beside the package.
    for path in Path(cv2.__file__).parents[1].glob("*opencv*.libs"):
        (site / path.name).symlink_to(path)
    (site / "cv2").symlink_to(Path(cv2.__file__).parent)
    return folder / "bin" / "python"


def predict_bare(folder, file, images) -> dict[str, runtime.Prediction]:
    """Predictions of a process of a bare environment, from a copy of the runtime, by image."""
    python = make_environment(folder / "bare")
    shutil.copytree(Path(runtime.__file__).parent, folder / "runtime")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), "-c", PREDICT, str(file), *map(str, images)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    arrays = {image: {k: np.array(v) for k, v in each.items()} for image, each in json.loads(done.stdout).items()}
    return {image: runtime.Prediction(**fields) for image, fields in arrays.items()}


def test_metrics_equal_those_of_pytorch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path / "data" / "demo", num_images={"train": 120, "val": 24}, progress=False)
    options = ["train_cfg.max_iters=70", "train_cfg.val_interval=70", "param_scheduler.1.end=70"]
    # One size, whose export takes seconds.
    options += [f"{split}_dataloader.dataset.pipeline.1.keep_ratio=False" for split in ("val", "test")]
    command = [sys.executable, str(ROOT / "tools" / "train.py"), "mask_rcnn_hylisanet_demo.py", "--work-dir", "run"]
    subprocess.run([*command, "--cfg-options", *options], check=True, timeout=900)
    (checkpoint,) = (tmp_path / "run").glob("best_*.pth")
    config, file = tmp_path / "run" / "mask_rcnn_hylisanet_demo.py", tmp_path / "model.onnx"
    cli.main(["export", str(config), str(checkpoint), str(file), "--size", "192", "192"])
    cfg = load_config(str(config), work_dir=str(tmp_path / "run"))
    cfg.load_from = str(checkpoint)
    expected = build_runner(cfg, 1.0, verbose=False).test()
    runner = build_runner(exported_config(cfg, file), 1.0, verbose=False)
    dataset = runner.build_dataloader(cfg.test_dataloader).dataset
    images = [dataset.get_data_info(index)["img_path"] for index in range(len(dataset))]
    recorded = predict_bare(tmp_path, file, images)
    runner.model.exported.predict = lambda image, threshold: recorded[str(image)]
    found = runner.test()
    assert found.keys() == expected.keys()
    for metric in ("coco/bbox_mAP", "coco/segm_mAP"):
        assert expected[metric] > 0.1
        assert found[metric] == pytest.approx(expected[metric], abs=0.002), metric
