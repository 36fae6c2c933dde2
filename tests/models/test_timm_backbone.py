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


def test_tokens_and_positions_of_a_vit_are_frozen():
    options = dict(type="mmlisa.TimmBackbone", model_name="vit_tiny_patch16_224")
    for stages in (-1, 0, 3, 12):
        with torch.device("meta"):
            network = MODELS.build(dict(**options, frozen_stages=stages)).train().network.model
        for parameter in (network.cls_token, network.pos_embed, network.patch_embed.proj.weight):
            assert parameter.requires_grad == (stages < 0)
        trained = [any(p.requires_grad for p in block.parameters()) for block in network.blocks]
        assert trained == [False] * max(stages, 0) + [True] * (12 - max(stages, 0))


@pytest.mark.parametrize(("stages", "most"), [(9, 5), (-2, 5), (3, 2)])
def test_frozen_stages_out_of_range_are_refused(stages, most):
    options = dict(out_indices=(0, 1)) if most == 2 else {}
    with torch.device("meta"), pytest.raises(ValueError, match=rf"frozen_stages={stages}; .* {most} \(all\)"):
        MODELS.build(dict(type="mmlisa.TimmBackbone", model_name="resnet18", frozen_stages=stages, **options))
