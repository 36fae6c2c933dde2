import pytest
import torch
from mmengine.optim import build_optim_wrapper
from torch import nn

from helpers.backbones import CASES, KINDS
from mmlisa.registry import MODELS as MMLISA_MODELS


def test_adaptive_clipping_limits_each_units_gradient_to_a_share_of_its_weights():
    model = nn.Linear(4, 3)
    nn.init.constant_(model.weight, 0.5)  # each unit has a norm of 1
    options = dict(
        type="mmlisa.AdaptiveClipOptimWrapper", optimizer=dict(type="SGD", lr=1.0), clip_grad=dict(clip_factor=0.01)
    )
    wrapper, before = build_optim_wrapper(model, options), model.weight.detach().clone()
    wrapper.update_params((model(torch.ones(1, 4)) * torch.tensor([100.0, 1e-4, 0.0])).sum())
    moved = (model.weight.detach() - before).norm(dim=1)
    torch.testing.assert_close(moved, torch.tensor([0.01, 2e-4, 0.0]), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["Bf16OptimWrapper", "AdaptiveClipBf16OptimWrapper"])
def test_steps_in_bfloat16(kind):
    """The layers compute in bfloat16, in which 1 + 1/512 is 1; the weights and their steps stay in fp32."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    options = {"clip_grad": dict(clip_factor=0.01)} if "Clip" in kind else {}
    wrapper = build_optim_wrapper(model, dict(type=f"mmlisa.{kind}", optimizer=dict(type="SGD", lr=2**-9), **options))
    for _ in range(2):
        with wrapper.optim_context(model):
            y = model(torch.ones(1, 1))
        assert (y.dtype, float(y)) == (torch.bfloat16, 1)
        wrapper.update_params(-y.float().sum())
    assert model.weight.dtype == torch.float32
    assert float(model.weight) > 1


def classifier(backbone: nn.Module) -> nn.Module:
    model = nn.Module()
    model.backbone, model.head = backbone, nn.Linear(1, 1)
    return model


OURS = "mmlisa.LayerwiseOptimWrapperConstructor"


def groups(model: nn.Module, constructor: str = OURS, **options) -> dict[str, tuple[float, float]]:
    """Learning rate over the base rate and weight decay of each parameter, of the built optimizer."""
    cfg = dict(optimizer=dict(type="AdamW", lr=1.0, weight_decay=0.1), paramwise_cfg=options, constructor=constructor)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    built = build_optim_wrapper(model, cfg).optimizer.param_groups
    return {names[id(p)]: (group["lr"], group["weight_decay"]) for group in built for p in group["params"]}


def rates(model: nn.Module, **options) -> dict[str, float]:
    return {name: rate for name, (rate, _) in groups(model, **options).items()}


def hybrid(**options) -> nn.Module:
    arch = dict(base="hybrid-small", depths=(1, 1, 4, 1), channels=(8, 8, 8, 8), num_heads=(1, 1, 1, 1))
    return classifier(MMLISA_MODELS.build(dict(type="LiSANet", arch=arch, **options)))


def test_convnexts_groups():
    """0 the stem, 1 and 2 the first two stages, 3 and 4 three blocks each of the third, 5 the last, 6 the head."""
    found = rates(hybrid(), layer_decay=0.5, layer_groups="convnext")
    layers = {"stem.proj": 0, "stages.0.blocks.0.norm1": 1, "stages.1.downsample.proj": 2, "stages.1.blocks.0.norm1": 2}
    layers |= {"stages.2.blocks.0.norm1": 3, "stages.2.blocks.2.norm1": 3, "stages.2.blocks.3.norm1": 4}
    layers |= {"stages.3.downsample.proj": 5, "stages.3.blocks.0.norm1": 5, "norm3": 6}
    for name, layer in layers.items():
        assert found[f"backbone.{name}.weight"] == 0.5 ** (6 - layer), name
    # Without the fourth stage, the norm after the third and the head still have the highest rate.
    found = rates(hybrid(out_indices=(1, 2)), layer_decay=0.5, layer_groups="convnext")
    assert found["head.weight"] == 1
    assert found["backbone.stages.2.blocks.3.norm1.weight"] == 0.5
    assert found["backbone.stem.proj.weight"] == 0.5**5


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_mmpretrains(kind):
    """tests/configs/test_recipes.py has the kinds of parameters that do not decay."""
    with torch.device("meta"):
        model = classifier(MMLISA_MODELS.build(CASES[kind]))
    model.get_layer_depth = lambda param_name: model.backbone.get_layer_depth(param_name, "backbone.")
    pytest.importorskip("mmpretrain.engine")
    keys = ("position_embedding", "cls_token", "relative_position_bias_table", "rel_pos")
    options = dict(norm_decay_mult=0.0, bias_decay_mult=0.0, flat_decay_mult=0.0)
    options["custom_keys"] = {key: dict(decay_mult=0.0) for key in keys}
    theirs = groups(model, "mmpretrain.LearningRateDecayOptimWrapperConstructor", layer_decay_rate=0.5, **options)
    assert theirs == groups(model, layer_decay=0.5, **options)
    assert {decay for _, decay in theirs.values()} == {0.0, 0.1}


def test_parts_of_the_model_have_rates_of_their_own():
    found = rates(hybrid(), lr_mults={"backbone": 0.1, "backbone.norm3": 0.2})
    names = ("head.weight", "backbone.norm3.bias", "backbone.stem.proj.bias")
    assert [found[name] for name in names] == [1, 0.2, 0.1]
    with pytest.raises(ValueError, match="bckbone"):
        rates(hybrid(), lr_mults={"bckbone": 0.1})
