"""Networks of timm under OpenMMLab's heads."""

import pytest
import timm
import torch

import mmlisa
from mmlisa.registry import MODELS


@pytest.mark.parametrize(
    "name", ["convnext_tiny.dinov3_lvd1689m", "efficientvit_b2", "cpubone_b2_bfrobust", "hgnetv2_b4", "resnet50"]
)
def test_frozen_stages(name):
    if not timm.is_model(name.split(".")[0]):
        pytest.skip("not in this timm")
    with torch.device("meta"):
        backbone = MODELS.build(dict(type="mmlisa.TimmBackbone", model_name=name, frozen_stages=2)).train()
    maps = backbone(torch.empty(2, 3, 352, 480, device="meta"))
    assert [x.shape[1] for x in maps] == mmlisa.channels("TimmBackbone", model_name=name)
    layers = dict(backbone.network.named_children())
    frozen, trained = ("layer1", "layer2") if name == "resnet50" else ("stages_1", "stages_2")
    assert not any(p.requires_grad for p in layers[frozen].parameters())
    assert all(p.requires_grad for p in layers[trained].parameters())
    assert not any(m.training for m in layers[frozen].modules())
    assert all(m.training for m in layers[trained].modules())
    assert not next(backbone.parameters()).requires_grad  # the stem
