"""Replaced attention: what a network takes over from its host, what it learns from it, and equal budgets."""

import csv
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.registry import MODELS
from mmdet.utils import register_all_modules

from mmlisa.datasets.demo import make_demo, make_once
from research import hosted_detector, replacement
from research.comparison import runs
from research.comparison.jobs import Job
from research.comparison.suites import Comparison
from research.hosted_detector import CpuBudgetHook, relative_error
from research.replacement import NOTHING, REPLACED, WINDOWS, Arm, to_markdown

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host's checkpoint with random weights where the arms look for it; returns its weights."""
    monkeypatch.setattr(replacement, "ROOT", tmp_path)
    register_all_modules()
    (job,) = replacement.list_runs()["host"]
    model = MODELS.build(runs.build_config(job, tmp_path).model)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.empty_like(parameter).uniform_(0.1, 0.3, generator=generator)
    file = tmp_path / replacement.checkpoint()
    file.parent.mkdir(parents=True)
    torch.save({"state_dict": model.state_dict(), "meta": {}}, file)
    return model.state_dict()


def build(arm, tmp_path):
    """The detector of an arm, initialised as at the start of its training."""
    comparison = Comparison("", "detection", {str(arm): arm.candidate()}, str(arm), 1, replacement.SIZE)
    model = MODELS.build(runs.build_config(Job("arms", comparison, str(arm)), tmp_path).model)
    model.init_weights()
    return model


# ---- what is carried over


@pytest.mark.parametrize(
    ("operator", "fresh"),
    {
        WINDOWS: set(),
        NOTHING: set(),
        "focused linear": {"scale", "positional_encoding", "dwc.weight", "dwc.bias"},
        "LiSA": {"kernel_a", "kernel_b", "bias", "norm.weight", "norm.bias"},
        "interactive": {f"mix_{branch}_{place}" for branch in ("query", "key") for place in ("before", "after")},
        "MILA": {"lepe.weight", "lepe.bias"},
    }.items(),
)
def test_all_but_the_operators_own_parameters_are_the_hosts(operator, fresh, host, tmp_path):
    found = set()
    for name, tensor in build(Arm(operator, 0 if operator == WINDOWS else 4, "host"), tmp_path).state_dict().items():
        block, _, own = name.partition(".attn.")
        if name in host:
            assert torch.equal(tensor, host[name]), name
        elif own.startswith("qk."):
            assert torch.equal(tensor, host[f"{block}.attn.{own.replace('qk', 'qkv')}"][: len(tensor)]), name
        else:
            found.add(own)
    assert found == fresh


def test_only_the_first_stages_are_replaced(tmp_path):
    blocks = MODELS.build(dict(Arm("LiSA", 2, "scratch").backbone())).stages
    kinds = [type(stage.blocks[0].attn).__name__ for stage in blocks]
    assert kinds == ["LiSA", "LiSA", "ShiftedWindowAttention", "ShiftedWindowAttention"]


def test_an_arm_from_scratch_has_no_host(host, tmp_path):
    scratch = build(Arm("LiSA", 4, "scratch"), tmp_path).state_dict()
    assert not torch.equal(scratch["neck.fpn_convs.0.conv.weight"], host["neck.fpn_convs.0.conv.weight"])


def test_arms_of_an_operator_differ_in_their_start_only(host):
    for operator in REPLACED:
        deltas = {start: Arm(operator, 4, start).candidate() for start in ("scratch", "host", "distilled", "carried")}
        assert len({json.dumps(candidate.backbone) for candidate in deltas.values()}) == 1
        hooks = {start: candidate.training["custom_hooks"][-1]["seconds"] for start, candidate in deltas.items()}
        assert hooks == dict(
            scratch=replacement.SECONDS, host=replacement.SECONDS, distilled=replacement.SECONDS, carried=0
        )
        changed = {start: {key for key in one.training if key.startswith("model")} for start, one in deltas.items()}
        assert changed["scratch"] == set()
        assert changed["host"] == changed["carried"] == {"model.type", "model.host"}
        assert changed["distilled"] == {"model.type", "model.host", "model.teacher"}


# ---- distillation


@pytest.fixture
def batch(tmp_path):
    """Two demo scenes as the detector's inputs."""
    make_demo(tmp_path / "scenes", num_images={"train": 2, "val": 1}, progress=False)
    comparison = Comparison("", "detection", {"x": Arm(WINDOWS, 0, "scratch").candidate()}, "x", 1, 64)
    cfg = runs.build_config(Job("batch", comparison, "x"), tmp_path)
    cfg.train_dataloader.dataset.data_root = f"{tmp_path}/scenes/"
    cfg.train_dataloader.batch_size = 2
    return next(iter(runs.Runner.build_dataloader(cfg.train_dataloader)))


def distill(model, batch):
    inputs = model.train().data_preprocessor(batch, training=True)
    return model.loss(inputs["inputs"], inputs["data_samples"])["loss_distill"]


@pytest.mark.parametrize("operator", REPLACED)
def test_the_backbone_learns_from_a_frozen_host(operator, host, batch, tmp_path):
    model = build(Arm(operator, 4, "distilled"), tmp_path)
    (teacher,) = model._teacher
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = distill(model, batch)
    loss.backward()
    assert loss > 0
    for i, stage in enumerate(model.backbone.stages):
        gradients = [parameter.grad for parameter in stage.blocks[0].attn.parameters()]
        assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients), f"stage {i}"
    optimizer.step()
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in teacher.parameters())
    assert not any(module.training for module in teacher.modules())
    assert not {id(p) for p in teacher.parameters()} & {id(p) for p in model.parameters()}
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(value, host[f"backbone.{name}"])


def test_a_host_has_nothing_to_learn_from_itself(host, batch, tmp_path):
    assert distill(build(Arm(WINDOWS, 0, "distilled"), tmp_path), batch) < 1e-8


def test_relative_error_against_numpy():
    rng = np.random.default_rng(0)
    ours, theirs = ([rng.normal(size=(2, 3, n, n)) * n for n in (4, 2)] for _ in range(2))
    expected = np.mean([((a - b) ** 2).mean() / b.var(ddof=1) for a, b in zip(ours, theirs, strict=True)])
    found = relative_error(*([torch.from_numpy(one) for one in maps] for maps in (ours, theirs)))
    assert found.item() == pytest.approx(expected)


# ---- budget and report


def test_the_rate_follows_the_seconds_and_the_last_one_ends_the_training(monkeypatch):
    clock = iter([100, 100.5, 100.6, 105.5, 105.6, 110, 110.1])
    monkeypatch.setattr(hosted_detector, "process_time", lambda: next(clock))
    runner = SimpleNamespace(
        train_loop=SimpleNamespace(), optim_wrapper=SimpleNamespace(param_groups=[dict(lr=1.0), dict(lr=0.1)])
    )
    hook = CpuBudgetHook(10)
    hook.before_train(runner)
    rates, ends = [], []
    for i in range(3):
        hook.before_train_iter(runner, i)
        rates.append([group["lr"] for group in runner.optim_wrapper.param_groups])
        hook.after_train_iter(runner, i)
        ends.append(runner.train_loop.stop_training)
    half = (1 + np.cos(0.55 * np.pi)) / 2
    assert np.allclose(rates, [[0.5, 0.05], [half, 0.1 * half], [0, 0]])
    assert ends == [False, False, True]


def test_tables():
    values = {"scratch": (40, 41, 42), "carried": (5,), "host": (70, 71, 72), "distilled": (71, 71, 74)}
    arms = {Arm("LiSA", 4, start): found for start, found in values.items()}
    arms[Arm("focused linear", 1, "host")] = (79, 80, 81)
    arms[Arm(WINDOWS, 0, "host")] = (80, 81, 82)
    runs = {
        arm: [dict(metrics={"1.0": {"coco/bbox_mAP_50": value / 100}}) for value in found]
        for arm, found in arms.items()
    }
    lines = to_markdown(runs, "box AP50").splitlines()
    assert "| LiSA | 4 | 5.0 | 41.0 ± 1.0 | 71.0 ± 1.0 | 72.0 ± 1.7 | +30.0 | none | -10.0 |" in lines
    assert "| focused linear | 1 |  |  | 80.0 ± 1.0 |  |  |  | none |" in lines


def test_the_host_and_three_arms_end_to_end(tmp_path, monkeypatch):
    """Two iterations of the host, none of the carried network, and one each of two others."""
    monkeypatch.setenv("PYTHONPATH", ":".join(__import__("sys").path))
    monkeypatch.chdir(tmp_path)
    small = make_demo("small", num_images={"train": 8, "val": 2}, progress=False)
    make_once("data/unseen_scenes", lambda folder: shutil.copytree(small, folder, dirs_exist_ok=True))
    arms = (Arm("LiSA", 1, "host"), Arm("MILA", 4, "distilled"))
    values = dict(
        HOST_ITERATIONS=2, SECONDS=0.01, SIZE=64, SEEDS=(0,), CARRIED=(Arm(WINDOWS, 0, "carried"),), ARMS=arms
    )
    for name, value in values.items():
        monkeypatch.setattr(replacement, name, value)

    assert replacement.run() == []
    text = replacement.write(tmp_path)
    lines = list(csv.DictReader((tmp_path / "replacement.csv").open()))
    found = [(line["attention"], line["stages"], line["start"], line["iterations"]) for line in lines]
    assert found == [
        (WINDOWS, "0", "plateau", "2"),
        (WINDOWS, "0", "carried", "0"),
        ("LiSA", "1", "host", "1"),
        ("MILA", "4", "distilled", "1"),
    ]
    assert f"| {WINDOWS} | 0 | {float(lines[1]['box AP50']):.1f} |" in text
