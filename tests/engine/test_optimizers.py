import pytest
import torch
from mmengine.optim import build_optim_wrapper
from timm.optim import Lamb
from torch import nn


def test_lamb_trains_and_spares_one_dimensional_parameters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    wrapper = build_optim_wrapper(
        model,
        dict(optimizer=dict(type="mmlisa.Lamb", lr=0.02, weight_decay=0.05), paramwise_cfg=dict(flat_decay_mult=0.0)),
    )
    assert isinstance(wrapper.optimizer, Lamb)
    decays = {group["params"][0].ndim: group["weight_decay"] for group in wrapper.optimizer.param_groups}
    assert decays == {1: 0.0, 2: 0.05}
    x = torch.randn(64, 4)
    losses = []
    for _ in range(40):
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        wrapper.update_params(loss)
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def layered(depth: int = 4) -> nn.Module:
    """The names of a classifier of four stages, one block each but for the third."""
    model = nn.Module()
    model.backbone = nn.Module()
    model.backbone.embeds = nn.ModuleList(nn.Linear(1, 1) for _ in range(4))
    model.backbone.stages = nn.ModuleList(nn.ModuleList(nn.LayerNorm(2) for _ in range(n)) for n in (1, 1, depth, 1))
    model.backbone.norm3 = nn.LayerNorm(2)
    model.head = nn.Linear(1, 1)
    return model


def test_rates_fall_from_layer_to_layer_and_norms_still_do_not_decay():
    model = layered()
    options = dict(norm_decay_mult=0.0, layer_decay=0.5)
    wrapper = build_optim_wrapper(
        model,
        dict(
            constructor="mmlisa.LayerwiseOptimWrapperConstructor",
            optimizer=dict(type="AdamW", lr=1.0, weight_decay=0.1),
            paramwise_cfg=options,
        ),
    )
    groups = {id(group["params"][0]): group for group in wrapper.optimizer.param_groups}
    rates = {name: groups[id(p)]["lr"] for name, p in model.named_parameters() if name.endswith("weight")}
    # ConvNeXt's layers: 0 the stem, 1 and 2 the first two stages, 3 and 4 three blocks each of the third, 5 the last, 6 the head.
    layers = {
        **{f"embeds.{i}": layer for i, layer in enumerate((0, 2, 3, 5))},
        **{
            "stages.0.0": 1,
            "stages.1.0": 2,
            "stages.2.0": 3,
            "stages.2.2": 3,
            "stages.2.3": 4,
            "stages.3.0": 5,
            "norm3": 6,
        },
    }
    for name, layer in layers.items():
        assert rates[f"backbone.{name}.weight"] == 0.5 ** (6 - layer), name
    assert rates["head.weight"] == 1
    assert {g["weight_decay"] for n, p in model.named_parameters() if "stages" in n for g in [groups[id(p)]]} == {0.0}


def test_parts_of_the_model_have_rates_of_their_own():
    def build(**options):
        cfg = dict(optimizer=dict(type="AdamW", lr=1.0, weight_decay=0.1), paramwise_cfg=options)
        return build_optim_wrapper(model, dict(cfg, constructor="mmlisa.LayerwiseOptimWrapperConstructor"))

    model = layered()
    groups = {
        id(g["params"][0]): g["lr"] for g in build(lr_mults={"backbone": 0.1, "backbone.norm3": 0.2}).param_groups
    }
    assert groups[id(model.head.weight)] == 1
    assert groups[id(model.backbone.norm3.bias)] == 0.2
    assert groups[id(model.backbone.embeds[0].bias)] == 0.1
    with pytest.raises(ValueError, match="bckbone"):
        build(lr_mults={"bckbone": 0.1})
    with pytest.raises(ValueError, match="layer_decay=2"):
        build(layer_decay=2)
