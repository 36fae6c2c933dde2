"""The trained model that ships with mmlisa finds the objects of its samples."""

import cv2
import pytest

import demo as tool
import mmlisa
from mmlisa.checkpoints import load_weights
from mmlisa.deploy.opening import DEMO
from mmlisa.training.building import build_model
from mmlisa.training.config import load_config

OBJECTS = {
    "000000000006": ["motorcycle", "person", "quokka"],
    "000000000008": ["coin", "flower", "motorcycle", "rocket"],
}


def test_the_objects_of_the_samples_are_found_and_drawn(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    tool.main(tool.parse_args(["--out-dir", str(tmp_path)]))
    lines = capsys.readouterr().out.splitlines()[1:3]
    model = mmlisa.load("demo")
    for line, (name, objects) in zip(lines, OBJECTS.items(), strict=True):
        found = model.predict(DEMO / f"{name}.jpg")
        assert sorted(model.classes[label] for label in found.labels) == objects
        assert all(f"1 {each}" in line for each in objects)
        picture, drawing = cv2.imread(str(DEMO / f"{name}.jpg")), cv2.imread(str(tmp_path / f"{name}.png"))
        assert drawing.shape[0] == 3 * picture.shape[0]


def test_the_checkpoint_fits_its_config():
    model = build_model(load_config("mask_rcnn_hylisanet_shipped_demo.py"))
    load_weights(model, DEMO / "model.pth", min_matched=1.0)
