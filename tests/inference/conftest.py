"""A model of the demo with random weights, and a picture."""

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from mmlisa import config_path
from mmlisa.inference.predictor import Predictor
from mmlisa.training.config import load_config


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo config, and a folder with a checkpoint of it with random weights and a picture."""
    folder = tmp_path_factory.mktemp("inference")
    cfg = load_config(config_path("mask_rcnn_hylisanet_demo.py"))
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)  # what a random model detects depends on its weights
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, folder / "random.pth")
    noise = np.random.default_rng(0).integers(0, 255, (150, 190, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.jpg")
    return cfg, folder


@pytest.fixture(scope="module")
def model(demo):
    return Predictor(demo[0], str(demo[1] / "random.pth"), device="cpu")


@pytest.fixture
def noise(demo):
    return demo[1] / "noise.jpg"
