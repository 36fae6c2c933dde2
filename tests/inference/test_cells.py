"""Cells in a loaded model: what is said, and that softmax attention stays where it is faster."""

import numpy as np
import pytest
import torch

from mmlisa.inference import cells
from mmlisa.inference.predictor import Predictor
from mmlisa.training.config import build_model, load_config

pytest.importorskip("mmpretrain")


@pytest.fixture
def predictor(tmp_path):
    cfg = load_config("classifier_dinov2_s_demo.py")
    cfg.model.backbone.arch = dict(base="small", depth=2, channels=48, num_heads=2, layer_scale=1.0)
    cfg.model.backbone.out_type, cfg.model.head.in_channels = "featmap", 48
    cfg.model.neck = dict(type="GlobalAveragePooling")
    torch.save({"state_dict": build_model(cfg).state_dict()}, tmp_path / "model.pth")
    return Predictor(cfg, str(tmp_path / "model.pth"), device="cpu")


@pytest.mark.parametrize(("seconds", "used"), [((2.0, 1.0), "CellAttention"), ((1.0, 2.0), "SoftmaxAttention")])
def test_the_faster_attention_is_used(predictor, monkeypatch, seconds, used):
    def kind(model):
        return type(model.backbone.stages[0].blocks[0].attn).__name__

    def run(predictor, image):
        maps, _ = original(predictor, image)
        return maps, seconds[kind(predictor.model) == "CellAttention"]

    original = cells._run
    monkeypatch.setattr(cells, "_run", run)
    image = np.random.default_rng(0).integers(0, 256, (200, 220, 3), dtype=np.uint8)
    before = predictor.predict(image).probabilities
    sentence = cells.use_cells(predictor, image)
    assert kind(predictor.model) == used
    assert sentence.startswith("15x16 tokens: features agree to 1.00, ")  # cells of one token: the same
    assert f"{seconds[0] / seconds[1]:.1f} times as fast" in sentence
    np.testing.assert_allclose(predictor.predict(image).probabilities, before, rtol=1e-4)
