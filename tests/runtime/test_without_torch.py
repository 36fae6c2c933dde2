"""The shipped detector scores the same in an environment that has neither PyTorch nor OpenMMLab."""

import os
import pickle
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import cv2
import pytest

from mmlisa import runtime
from mmlisa.datasets.demo import make_demo
from mmlisa.inference.exported import exported_config
from mmlisa.inference.load import DEMO, DEMO_CONFIG
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner

pytest.importorskip("onnxruntime")
PREDICT = """
import importlib.util, pickle, sys
import runtime

installed = [name for name in ("torch", "mmengine", "mmcv", "mmdet", "mmlisa") if importlib.util.find_spec(name)]
assert not installed, installed
model = runtime.load(sys.argv[1])
pickle.dump({image: vars(model.predict(image, 0.0)) for image in sys.argv[2:]}, open("found.pkl", "wb"))
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


@pytest.mark.nightly
def test_metrics_equal_those_of_pytorch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path / "data" / "demo", num_images={"train": 1, "val": 24}, progress=False)
    cfg = load_config(DEMO_CONFIG, work_dir="run")
    cfg.load_from = str(DEMO / "model.pth")
    expected = build_runner(cfg, 1.0, verbose=False).test()
    runner = build_runner(exported_config(cfg, DEMO / "model.onnx"), 1.0, verbose=False)
    dataset = runner.build_dataloader(cfg.test_dataloader).dataset
    images = [dataset.get_data_info(index)["img_path"] for index in range(len(dataset))]
    shutil.copytree(Path(runtime.__file__).parent, tmp_path / "runtime")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(make_environment(tmp_path / "bare")), "-c", PREDICT, str(DEMO / "model.onnx"), *images]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = pickle.loads((tmp_path / "found.pkl").read_bytes())
    runner.model.exported.predict = lambda image, *_, **__: runtime.Prediction(**found[image])
    metrics = runner.test()
    assert metrics.keys() == expected.keys()
    for metric in ("coco/bbox_mAP", "coco/segm_mAP"):
        assert expected[metric] > 0.5
        assert metrics[metric] == pytest.approx(expected[metric], abs=0.002), metric
