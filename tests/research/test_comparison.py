"""Comparisons by training: what is equal in them, what their tables say, and that nothing is done twice."""

import csv
from dataclasses import replace
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from mmlisa.datasets.demo import make_imagenet_layout, make_once
from mmlisa.models import attention
from research.benchmark import build_backbone
from research.comparison import data, jobs, processes, report, runs
from research.comparison.jobs import Job
from research.comparison.report import Sample, difference, pooled_deviation
from research.comparison.suites import (
    BACKBONE_SIZE,
    BACKBONES,
    MORE_OPERATORS,
    OPERATORS,
    SUITES,
    TASKS,
)

pytestmark = pytest.mark.slow

# Operators that change the grid, or belong to one host and its maps.
ELSEWHERE = {
    "LeViTAttention",
    "PooledAttention",
    "PooledQueryAttention",
    "PooledSoftmaxAttention",
    "ProjectedAttention",
    "SubsampledAttention",
}


def test_every_operator_that_keeps_the_grid_is_compared():
    operators = {
        name
        for name in vars(attention)
        if isinstance(found := getattr(attention, name), type) and issubclass(found, nn.Module) and name != "HeadPool"
    }
    compared = {cfg["type"] for cfg in (OPERATORS | MORE_OPERATORS).values()}
    assert compared == operators - ELSEWHERE


def test_backbones_have_equal_macs(monkeypatch):
    """By the measurement itself, whose training step each of them must survive."""
    monkeypatch.setattr(runs, "ROUNDS", 1)
    comparison = SUITES["default"]["backbones_detection"]
    assert comparison.size == BACKBONE_SIZE
    macs = {row["candidate"]: row["macs"] for row in runs.measure(Job("backbones", comparison))["rows"]}
    assert macs.keys() == BACKBONES.keys()
    mean = np.mean(list(macs.values()))
    assert {name: n for name, n in macs.items() if abs(n / mean - 1) > 0.1} == {}


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_return_the_channels_that_heads_are_told(name):
    candidate = BACKBONES[name]
    maps = build_backbone(candidate.backbone)(torch.zeros(1, 3, 64, 64))
    assert tuple(feature.shape[1] for feature in maps) == candidate.channels
    assert [feature.shape[-1] for feature in maps] == [16, 8, 4, 2]


@pytest.mark.parametrize("suite", SUITES)
def test_only_the_backbone_and_its_channels_differ(suite):
    for name, comparison in SUITES[suite].items():
        assert comparison.baseline in comparison.candidates
        assert len(comparison.seeds) >= 3
        deltas = {candidate: jobs.delta(comparison, candidate, 0) for candidate in comparison.candidates}
        base = deltas[comparison.baseline]
        assert not comparison.candidates[comparison.baseline].training
        for candidate, other in deltas.items():
            own = comparison.candidates[candidate].training
            assert own.items() <= other.items()
            assert base.keys() == other.keys() - own.keys()
            differing = {key for key in base if base[key] != other[key]}
            assert differing <= {"model.backbone", TASKS[comparison.task].channels_key}, name


@pytest.mark.parametrize("name", SUITES["default"])
def test_configs_take_what_a_comparison_changes(name, tmp_path):
    """Each key that is changed exists in the task's config, or is one that the libraries read."""
    comparison = SUITES["default"][name]
    candidate = next(iter(comparison.candidates))
    cfg = runs.build_config(Job(name, comparison, candidate, 2), tmp_path)
    assert cfg.randomness.seed == 2
    assert cfg.train_cfg.max_iters == comparison.iterations
    assert cfg.model.backbone.type == comparison.candidates[candidate].backbone["type"]
    for keys in (TASKS[comparison.task].train_size_keys, TASKS[comparison.task].size_keys):
        for key in keys:
            node = cfg
            for part in key.split("."):
                node = node[int(part) if part.isdigit() else part]
            assert tuple(node) == (comparison.size, comparison.size), key


def test_a_seed_is_the_fold_of_data_that_have_some(tmp_path):
    cfg = runs.build_config(Job("solar_cells", SUITES["default"]["solar_cells"], "softmax", 3), tmp_path)
    assert cfg.train_dataloader.dataset.fold == cfg.test_dataloader.dataset.fold == cfg.randomness.seed == 3


# ---- arithmetic


def test_deviations_against_numpy():
    rng = np.random.default_rng(0)
    groups = [rng.normal(80, 3, n) for n in (3, 5, 4)]
    samples = [Sample(tuple(group)) for group in groups]
    for sample, group in zip(samples, groups, strict=True):
        assert sample.mean == pytest.approx(group.mean())
        assert sample.deviation == pytest.approx(group.std(ddof=1))
    residuals = np.concatenate([group - group.mean() for group in groups])
    assert pooled_deviation(samples) == pytest.approx(np.sqrt((residuals**2).sum() / (len(residuals) - len(groups))))
    assert isnan(pooled_deviation([Sample((1.0,))]))


def test_a_difference_below_two_standard_deviations_is_none():
    quiet, noisy = Sample((80.0, 80.0, 80.0)), Sample((84.0, 85.0, 86.0))
    assert difference(noisy, quiet, pooled=1.0) == "+5.0"
    assert difference(quiet, noisy, pooled=1.0) == "-5.0"
    assert difference(noisy, quiet, pooled=2.6) == "none"  # the others' runs scatter more
    scattered = Sample((80.0, 85.0, 90.0))
    assert difference(scattered, quiet, pooled=0.1) == "none"  # these two do
    assert difference(Sample((90.0, 90.0)), quiet, pooled=1.0) == "?"


def test_table(tmp_path):
    comparison = SUITES["quick"]["quick"]
    accuracies = {"softmax": (80, 81, 82), "LiSA": (89, 90, 91), "depthwise 7x7": (80, 82, 84)}
    results = [
        dict(candidate=name, seed=seed, accuracy={"1.0": float(value)}, commit="abc")
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    text = report.to_markdown(comparison, results, None)
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in text.splitlines() if " ± " in line][:3]
    assert rows == [
        ["LiSA", "90.0 ± 1.0", "3", "+9.0", ""],
        ["depthwise 7x7", "82.0 ± 2.0", "3", "none", "-8.0"],
        ["softmax", "81.0 ± 1.0", "3", "", "-9.0"],
    ]
    assert f"over all rows: {np.sqrt((1 + 1 + 4) / 3):.1f}" in text
    assert "Commits: abc" in text


def test_costs_are_told_before_anything_is_trained(tmp_path):
    comparison = replace(SUITES["quick"]["quick"], scales=(0.5, 1.0))
    rows = [
        dict(
            candidate=name,
            scale=scale,
            seconds_per_image=dict(seconds=0.002 * scale),
            params=3e5,
            macs=4e6,
            peak_bytes=5e6,
            training_peak_bytes=6e6,
        )
        for name in comparison.candidates
        for scale in comparison.scales
    ]
    measured = dict(rows=rows, batch=8, rounds=5, device="a device", commit="abc")
    text = report.to_markdown(comparison, [], measured)
    assert "| LiSA |  | 0 |  |  | 2.00 | 0.300 | 4.0 | 5.0 | 6.0 |" in text
    assert "nothing trained yet" in text
    assert "| LiSA | 1.00 | 2.00 |" in text
    assert "top-1, % at" not in text
    report.plot(comparison, [], rows, tmp_path / "costs.png")
    assert (tmp_path / "costs.png").is_file()


# ---- running


def test_each_scale_is_tested_on_images_of_its_size(monkeypatch):
    tested = []

    def evaluate(runner, cfg):
        resize = cfg.test_dataloader.dataset.pipeline[1]
        assert resize.type == "Resize"
        tested.append(tuple(resize.scale))
        return {"coco/bbox_mAP_50": 0.01 * len(tested)}

    monkeypatch.setattr(runs, "evaluate", evaluate)
    monkeypatch.setattr(runs, "_prepare_process", lambda: None)
    monkeypatch.setattr(runs, "build_runner", lambda *_, **__: SimpleNamespace(iter=200))
    monkeypatch.setattr(runs, "train_runner", lambda runner: None)
    comparison = SUITES["default"]["resolution"]
    result = runs.train(Job("resolution", comparison, "softmax"), Path("never written"))
    assert tested == [(48, 48), (96, 96), (192, 192), (384, 384)]
    assert result["accuracy"] == pytest.approx({0.5: 1, 1.0: 2, 2.0: 3, 4.0: 4})


@pytest.fixture
def small_objects(tmp_path, monkeypatch):
    """A few images in place of the comparison's, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    make_once("data/unseen_objects", data.OBJECTS_RECIPE, lambda folder: make_imagenet_layout(folder, 4))


def test_two_runs_end_to_end_and_nothing_twice(small_objects, tmp_path, monkeypatch):
    """A measurement and two trainings of two iterations, one of which fails at first."""
    monkeypatch.setenv("PYTHONPATH", ":".join(__import__("sys").path))
    quick = SUITES["quick"]["quick"]
    broken = replace(quick.candidates["softmax"], backbone=dict(type="mmlisa.LiSANet", arch="no such arch"))
    comparison = replace(quick, candidates=dict(softmax=quick.candidates["softmax"]), iterations=2, seeds=(0, 1))
    root = tmp_path / "results"
    failing = Job("quick", replace(comparison, candidates=dict(broken=broken)), "broken", 0)
    first = [Job("quick", comparison), failing, Job("quick", comparison, "softmax", 0)]

    (failure,) = processes.run_all(first, root, parallel=2)
    assert failure.startswith("quick, broken, seed 0: ValueError")
    assert "no such arch" in failure

    todo = list(jobs.list_jobs(dict(quick=comparison)))
    before = (root / "quick" / "softmax_0.json").stat().st_mtime_ns
    assert processes.run_all(todo, root) == []
    assert (root / "quick" / "softmax_0.json").stat().st_mtime_ns == before

    report.write(todo, root, tmp_path)
    lines = list(csv.DictReader((tmp_path / "quick.csv").open()))
    assert [line["seed"] for line in lines] == ["0", "1"]
    for line, job in zip(lines, [job for job in todo if job.candidate], strict=True):
        run = jobs.read(job, root)
        assert 0 <= run["accuracy"]["1.0"] <= 100
        assert float(line["accuracy_x1"]) == round(run["accuracy"]["1.0"], 2)
        assert run["config"]["model.backbone"]["attention"] == {"type": "SoftmaxAttention"}
        assert line["commit"] == run["commit"]
    (row,) = jobs.read(todo[0], root)["rows"]
    assert min(row["params"], row["macs"], row["peak_bytes"], row["seconds_per_image"]["seconds"]) > 0
    assert row["training_peak_bytes"] > row["peak_bytes"]
    assert (tmp_path / "quick.png").is_file()

    longer = Job("quick", replace(comparison, iterations=3), "softmax", 0)
    assert jobs.read(longer, root) is None  # a result of another config does not count
