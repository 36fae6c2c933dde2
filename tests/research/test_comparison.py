"""Comparisons by training: what is equal in them, what their tables say, and that nothing is done twice."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from mmlisa.complexity import count
from mmlisa.datasets.demo import make_imagenet_layout
from research import comparison
from research.benchmark import build_backbone
from research.comparison import build_config, delta, difference
from research.suites import OBJECTS, SUITES, TASKS

COMPARISONS = {name: one for suite in SUITES.values() for name, one in suite.items()}


def test_backbones_have_equal_macs_and_the_channels_that_heads_are_told():
    one, macs = COMPARISONS["backbones_detection"], {}
    image = torch.zeros(1, 3, one.size, one.size)
    for name, candidate in one.candidates.items():
        model = build_backbone(candidate.backbone, training=True)
        macs[name] = count(model, image).macs
        with torch.no_grad():
            maps = model(image)
        assert [x.shape[1] for x in maps] == candidate.channels, name
        assert [x.shape[-1] for x in maps] == [32, 16, 8, 4], name
    mean = np.mean(list(macs.values()))
    assert {name: n for name, n in macs.items() if abs(n / mean - 1) > 0.1} == {}


@pytest.mark.parametrize("name", COMPARISONS)
def test_only_the_backbone_its_channels_and_the_start_differ(name, tmp_path):
    one = COMPARISONS[name]
    deltas = {candidate: delta(one, candidate, 0) for candidate in one.candidates}
    base = deltas[one.baseline]
    for candidate, other in deltas.items():
        differing = {key for key in base | other if base.get(key) != other.get(key)}
        assert differing <= {"model.backbone", TASKS[one.task].channels_key, "load_from", "train_cfg.max_iters"}, (
            candidate
        )
    cfg = build_config(one, one.baseline, 2, tmp_path)
    assert (cfg.randomness.seed, cfg.train_cfg.max_iters) == (2, one.iterations)
    for key in TASKS[one.task].size_keys:
        node = cfg
        for part in key.split("."):
            node = node[int(part) if part.isdigit() else part]
        assert tuple(node) == (one.size, one.size), key


def test_a_difference_below_two_standard_deviations_is_none():
    quiet, noisy = (80.0, 80.0, 80.0), (84.0, 85.0, 86.0)
    assert difference(noisy, quiet, pooled=1.0) == "+5.0"
    assert difference(quiet, noisy, pooled=1.0) == "-5.0"
    assert difference(noisy, quiet, pooled=2.6) == "none"  # the others' runs scatter more
    scattered = (80.0, 85.0, 90.0)
    assert difference(scattered, quiet, pooled=0.1) == "none"  # these two do
    assert difference((90.0, 90.0), quiet, pooled=1.0) == "?"


def test_a_measurement_and_trainings_and_nothing_twice(tmp_path, monkeypatch):
    """Two iterations on a few images; one run fails and does not stop the others."""
    monkeypatch.chdir(tmp_path)
    make_imagenet_layout(OBJECTS, {"train": 4, "val": 4})
    one = COMPARISONS["operators_isotropic_classification"]
    broken = replace(one.candidates["softmax"], backbone=dict(type="mmlisa.LiSANet", arch="no such arch"))
    one = replace(one, candidates=dict(softmax=one.candidates["softmax"]), iterations=2, seeds=(0, 1))
    with_broken = replace(one, candidates=dict(broken=broken))
    assert "no such arch" in comparison.run("quick", with_broken, "broken", 0)
    for candidate, seed in ((None, 0), ("softmax", 0), ("softmax", 1)):
        assert comparison.run("quick", one, candidate, seed) is None
    monkeypatch.setattr(comparison, "train", lambda *_: pytest.fail("trained twice"))
    assert comparison.run("quick", one, "softmax", 0) is None

    text = comparison.write_report("quick", one, tmp_path / "out")
    assert text.strip() in (tmp_path / "out" / "README.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| softmax")]
    assert all(cell.strip() for cell in line.split("|")[6:-1])
    lines = list(csv.DictReader((tmp_path / "out" / "quick.csv").open()))
    run = json.loads((tmp_path / comparison.ROOT / "quick" / "softmax_0.json").read_text())
    assert [line["seed"] for line in lines] == ["0", "1"]
    assert float(lines[0]["accuracy"]) == run["accuracy"]
    assert 0 <= run["accuracy"] <= 100
    assert run["commit"] == lines[0]["commit"]
