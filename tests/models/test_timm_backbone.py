"""Networks of timm under OpenMMLab's heads."""

import pytest
import timm
import torch

import mmlisa
from mmlisa.registry import MODELS


@pytest.mark.parametrize(
    "name", ["convnext_tiny.dinov3_lvd1689m", "efficientvit_b2", "cpubone_b2_bfrobust", "resnet50", "swin_s3_tiny_224"]
)
def test_frozen_stages(name):
    if not timm.is_model(name.split(".")[0]):
        pytest.skip("not in this timm")
    options = dict(strict_img_size=False) if name.startswith("swin") else {}
    with torch.device("meta"):
        backbone = MODELS.build(dict(type="mmlisa.TimmBackbone", model_name=name, frozen_stages=2, **options)).train()
    maps = backbone(torch.empty(2, 3, 352, 480, device="meta"))
    assert [x.shape[1] for x in maps] == mmlisa.channels("TimmBackbone", model_name=name)
    layers = dict(backbone.network.named_children())
    stage = {"resnet50": "layer", "swin_s3_tiny_224": "layers_"}.get(name, "stages_")
    frozen, trained = f"{stage}1", f"{stage}2"
    assert not any(p.requires_grad for p in layers[frozen].parameters())
    assert all(p.requires_grad for p in layers[trained].parameters())
    assert not any(m.training for m in layers[frozen].modules())
    assert all(m.training for m in layers[trained].modules())
    assert not next(backbone.parameters()).requires_grad  # the stem
