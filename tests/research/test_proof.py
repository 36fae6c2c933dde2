"""The proof kit: every section gives rows on a CPU, failures are rows, and the time limit cuts sections, not the page."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from research import benchmark, proof

SCOPE = proof.DRY_RUN._replace(names=("HyLiSANet-S",), tuning=((16, 8, (4, 4)),), grids=((5, 9),))


@pytest.mark.slow
def test_dry_run_has_every_section(monkeypatch):
    narrow = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(16, 32, 32, 64), num_heads=(1, 2, 2, 4))
    monkeypatch.setitem(benchmark.BACKBONES, "HyLiSANet-S", (dict(type="mmlisa.LiSANet", arch=narrow), ()))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    sections, cut = proof.prove(SCOPE, "cpu")
    json.dumps(sections)
    assert cut == []
    finite = sections["finiteness"]
    assert len(finite) == 4
    assert all(row["finite"] and 0 < row["error"] < 0.1 for row in finite if "failure" not in row)
    assert {row["mode"] for row in sections["thresholds"]} == {"encode", "mix"}
    over = [row["over_softmax"] for row in sections["crossings"] if row["name"] == "softmax (SDPA)"]
    assert over == [1, 1]
    for name in ("inference", "training"):
        assert {row["mode"] for row in sections[name]} == {"eager", "compiled"}
        assert not any("failure" in row for row in sections[name])
        assert benchmark.to_markdown(name, sections[name]).count("| HyLiSANet-S |") == len(sections[name])


class Overflow(nn.Module):
    """Exceeds fp16's range, and not that of bf16."""

    def forward(self, image):
        return [image.new_full((1, 4), 6e4) * 2]


def test_finiteness_notices_an_overflow(monkeypatch):
    monkeypatch.setattr(benchmark, "build_backbone", lambda cfg: Overflow())
    rows = {row["mode"]: row["finite"] for row in proof.finiteness(SCOPE, "cpu")}
    assert not rows["converted, float16"]
    assert rows["converted, bfloat16"]
    assert "**no**" in benchmark.to_markdown("", list(proof.finiteness(SCOPE, "cpu")))


def test_a_way_that_fails_is_a_row(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("no compiler\nmore")

    monkeypatch.setattr(torch, "compile", refuse)
    eager, compiled = proof.inference(SCOPE, "cpu")
    assert eager["seconds"] > 0
    assert compiled["failure"] == "RuntimeError: no compiler"
    assert "no compiler" in benchmark.to_markdown("", [eager, compiled])


def test_the_time_limit_cuts_sections(monkeypatch):
    def endless(scope, device):
        while True:
            yield dict(case="", name="")

    monkeypatch.setattr(proof, "SECTIONS", dict(first=endless, second=lambda scope, device: [dict(name="last")]))
    sections, cut = proof.prove(SCOPE, "cpu", minutes=0.001)
    assert cut[0] == "first"
    assert sections["first"]
    assert sections["second"] == [dict(name="last")]
