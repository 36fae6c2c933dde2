"""Pictures of predictions: written for good input, nothing half done for bad input."""

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from mmlisa import config_path
from mmlisa.analysis.inference import predict_pictures
from mmlisa.engine.launch import load_config


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo config, a checkpoint of it with random weights, and a picture."""
    folder = tmp_path_factory.mktemp("inference")
    cfg = load_config(config_path("mask_rcnn_hylisanet_demo.py"))
    init_default_scope(cfg.default_scope)
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, folder / "random.pth")
    noise = np.random.default_rng(0).integers(0, 255, (150, 190, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.jpg")
    return cfg, folder


def test_picture_with_boxes(demo, tmp_path):
    cfg, folder = demo
    paths = predict_pictures(
        cfg, str(folder / "random.pth"), [str(folder / "noise.jpg")], tmp_path / "out", score_threshold=0.0
    )
    (path,) = paths
    picture, original = np.asarray(Image.open(path)), np.asarray(Image.open(folder / "noise.jpg"))
    assert picture.shape == original.shape
    assert (picture != original).any()


@pytest.mark.parametrize(
    ("image", "message"),
    [("none.jpg", "does not exist"), ("random.pth", "cannot be read"), ("cut.jpg", "cannot be read")],
)
def test_bad_image_is_named_before_anything_is_written(demo, tmp_path, image, message):
    cfg, folder = demo
    (folder / "cut.jpg").write_bytes((folder / "noise.jpg").read_bytes()[:900])
    images = [str(folder / "noise.jpg"), str(folder / image)]
    with pytest.raises((ValueError, FileNotFoundError), match=f"{image} {message}"):
        list(predict_pictures(cfg, str(folder / "random.pth"), images, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
