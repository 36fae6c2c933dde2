"""Castling's schedule in a real training, PicoDet's average against PaddleDetection's formula, and rates by layer."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import EMAHook
from mmengine.model import BaseModel
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from helpers.backbones import CASES, KINDS
from helpers.toy_runner import runner
from mmlisa.models.attention import LinearAngularAttention
from mmlisa.registry import MODELS as MMLISA_MODELS
from mmlisa.training.recipes import CycleEMAHook, SelfDistillationHook, ThresholdEMA


class Model(BaseModel):
    def __init__(self, aux: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attn = LinearAngularAttention(8, 2, grid=(2, 3), aux=aux)
        self.seen: list[float] = []

    def forward(self, x, mode="tensor"):
        self.seen.append(round(float(self.attn.epsilon), 4))
        return dict(loss=self.attn(x, (2, 3)).square().mean())


def train(tmp_path, model: Model, hook: dict) -> Runner:
    data = [torch.randn(6, 8) for _ in range(10)]
    runner = Runner(
        model,
        str(tmp_path),
        train_dataloader=DataLoader(data, batch_size=2),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)),
        custom_hooks=[dict(type="mmlisa.CastlingHook", **hook)],
        visualizer=dict(type="Visualizer", vis_backends=[dict(type="LocalVisBackend")]),
        experiment_name=str(tmp_path),  # MMEngine keeps one message hub per name
    )
    model.data_preprocessor.forward = lambda data, training=False: dict(x=data)
    runner.train()
    return runner


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (dict(schedule="constant"), [0.02] * 10),
        (dict(schedule="step", begin=0.5), [0.02] * 4 + [1.0] * 6),
        (dict(schedule="linear", begin=0.5), [0.02] * 4 + [0.02, 0.216, 0.412, 0.608, 0.804, 1.0]),
    ],
)
def test_schedules(tmp_path, options, expected):
    model = Model()
    runner = train(tmp_path, model, dict(interval=2, **options))
    assert model.seen == pytest.approx(expected)
    ratios = runner.message_hub.get_scalar("castling/attn/nonzero_ratio").data[0]
    assert len(ratios) == 5
    assert ratios[0] > 0
    assert (ratios[-1] > 0) == (options["schedule"] == "constant")
    assert not model.attn.aux


def test_a_model_without_a_branch_is_refused(tmp_path):
    with pytest.raises(ValueError, match="aux=True"):
        train(tmp_path, Model(aux=False), {})


def test_average_is_the_bias_corrected_one_from_zeros():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    averaged = ThresholdEMA(model, decay=0.75)  # cut off from the 27th step on
    total, bias = 0.0, 1.0
    for t in range(40):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        averaged.update_parameters(model)
        decay = min(0.75, (1 + t) / (10 + t))
        total, bias = decay * total + (1 - decay) * model.weight.detach(), bias * decay
        torch.testing.assert_close(
            averaged.module.weight.detach(), total / (1 - bias), rtol=1e-2 if t > 25 else 1e-12, atol=0
        )


def test_a_cycle_begins_with_an_epoch_and_not_where_it_is_resumed():
    hook = CycleEMAHook(cycle=5)
    hook.ema_model = SimpleNamespace(steps=torch.tensor(7))
    for epoch, batch, steps in ((5, 3, 7), (4, 0, 7), (5, 0, 0)):
        hook.before_train_iter(SimpleNamespace(epoch=epoch), batch)
        assert hook.ema_model.steps == steps


@pytest.mark.parametrize(("epoch", "distils"), [(2, False), (3, True), (5, True)])
def test_a_training_resumed_after_the_first_distilled_epoch_distils(epoch, distils):
    hook, teachers, average = SelfDistillationHook(distill_from=3), [], object()
    hook.src_model, hook.ema_model = SimpleNamespace(set_teacher=teachers.append), SimpleNamespace(module=average)
    hook.before_train_epoch(SimpleNamespace(epoch=epoch))
    assert teachers == [average] * distils


def test_an_average_starts_from_the_loaded_weights(tmp_path):
    state = {"layer.weight": torch.full((1, 4), 3.0), "layer.bias": torch.full((1,), 3.0)}
    torch.save(state, tmp_path / "loaded.pth")
    trained, hook = runner(tmp_path, load_from=str(tmp_path / "loaded.pth")), EMAHook()
    trained.register_hook(hook)
    trained.call_hook("before_run")
    trained.load_or_resume()
    torch.testing.assert_close(hook.ema_model.module.state_dict(), trained.model.state_dict())
    assert torch.equal(trained.model.layer.weight, state["layer.weight"])


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
