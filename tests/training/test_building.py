"""Building a model changes nothing in the user's process, and reads no file in a way that runs code from it in our tools."""

import os

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseDataPreprocessor, BaseModel
from mmengine.registry import MODELS
from mmengine.runner.checkpoint import CheckpointLoader

from mmlisa.training.building import build_model


class Built(BaseModel):
    def forward(self, *args):
        pass


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(MODELS.module_dict, "Built", Built)


def test_the_preprocessor_beside_a_model_becomes_its_own():
    cfg = Config(dict(model=dict(type="Built"), data_preprocessor=dict(type="BaseDataPreprocessor", non_blocking=True)))
    model = build_model(cfg)
    assert isinstance(model.data_preprocessor, BaseDataPreprocessor)
    assert model.data_preprocessor._non_blocking
    cfg.model.data_preprocessor = dict(type="BaseDataPreprocessor")
    assert not build_model(cfg).data_preprocessor._non_blocking


def test_building_leaves_the_loaders_of_the_process(tmp_path):
    """The user's own files may be pickles."""
    schemes, environment = dict(CheckpointLoader._schemes), dict(os.environ)
    build_model(Config(dict(model=dict(type="Built"))))
    assert CheckpointLoader._schemes == schemes
    assert dict(os.environ) == environment
    torch.save(Config(dict(a=1)), tmp_path / "own.pth")
    assert torch.load(tmp_path / "own.pth", weights_only=False).a == 1
