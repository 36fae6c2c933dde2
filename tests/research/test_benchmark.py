"""The benchmark measures what it says: equal functions, interleaved, with the memory PyTorch really takes."""

import json

import pytest
import torch

import benchmark as command
from helpers.backbones import NARROW
from mmlisa import ops
from research import benchmark, measured


@pytest.fixture
def narrow(monkeypatch):
    cfg = dict(type="mmlisa.LiSANet", arch=dict(base="hybrid-small", **NARROW))
    monkeypatch.setattr(benchmark, "BACKBONES", {"narrow": (cfg, ()), "with_cp": (dict(cfg, with_cp=True), ())})


def test_pseudo_code_is_lisa():
    query, key, value, *kernels = benchmark.lisa_inputs(2, 32, 3, (5, 6))
    tokens = [x.permute(0, 3, 4, 1, 2) for x in (query, key, value)]
    y = benchmark.pseudo_code(
        *tokens, kernels[0].movedim((0, 1), (-2, -1)), kernels[1].movedim(0, -1), kernels[2]
    ).permute(0, 3, 4, 1, 2)
    torch.testing.assert_close(y, ops.lisa(query, key, value, *kernels, backend="reference"))


def test_candidates_take_turns():
    order = []
    rows = benchmark.time_in_turns({name: lambda name=name: order.append(name) for name in "ab"}, rounds=3, sample=0)
    assert order[-6:] == list("ababab")
    assert all(0 <= row["low"] <= row["seconds"] <= row["high"] for row in rows.values())


def test_peak_memory_counts_what_lives_at_once():
    x = torch.zeros(1 << 20)
    one = benchmark.peak_extra_bytes(lambda: x + 1)
    assert one == pytest.approx(x.nbytes, rel=0.01)
    assert benchmark.peak_extra_bytes(lambda: ((x + 1) + 1) + 1) == pytest.approx(2 * one, rel=0.01)


def test_lisa_takes_a_fifth_of_the_pseudo_codes_memory():
    """Memory, unlike time, is the same on every machine: 56x56x64 at batch 4, without and with a backward pass."""
    for candidates in benchmark.operator_candidates(4, 64, 8, (56, 56), "cpu"):
        ours, baseline = (benchmark.peak_extra_bytes(candidates[name]) for name in ("LiSA", "pseudo-code"))
        assert ours <= baseline / 5


def test_operator_ratios_are_of_the_pseudo_code_to_the_candidate(monkeypatch):
    """A speed-up is its time over ours, a share of memory ours over its: 4 s against 2 s is 2.00 and 0.50."""
    seconds = {"LiSA": 2.0, "pseudo-code": 4.0, "reference": 16.0}
    times = {name: dict(seconds=value, low=value, high=value) for name, value in seconds.items()}
    monkeypatch.setattr(benchmark, "operator_candidates", lambda *_: ({n: n for n in seconds}, {n: n for n in seconds}))
    monkeypatch.setattr(benchmark, "time_in_turns", lambda *_: times)
    monkeypatch.setattr(benchmark, "peak_extra_bytes", lambda name, device: int(1e6 * seconds[name]))
    rows = measured.with_ratios(benchmark.benchmark_operators(1, "cpu", [("5x6x32", 2, 32, 3, (5, 6))]))
    json.dumps(rows)
    lines = benchmark.to_markdown("Operators", rows).splitlines()
    assert "| 5x6x32 | LiSA | forward | 2000 (2000-2000) | 2.0 | 2.00 | 0.50 |" in lines
    assert "Speed of LiSA over the pseudo-code, forward: geometric mean 2.00, least 2.00." in lines


def test_blocks_have_the_options_of_their_grid():
    options, grids = dict(type="ShiftedWindowAttention", window_size=[2, 4]), [[4, 4], [8, 8]]
    blocks = [benchmark.build_block(options, grid, 16, 2, grids) for grid in grids]
    assert [block.attn.window_size for block in blocks] == [2, 4]


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_backbone_rows(narrow, monkeypatch, kind):
    monkeypatch.setattr(measured, "BASELINE", "narrow")
    monkeypatch.setattr(benchmark, "computes_bf16", lambda: True)
    rows = benchmark.benchmark_networks(1, "cpu", [(64, 96)], ["narrow", "with_cp"], kind=kind)
    assert not [key for row in rows for key in row if "ratio" in key]
    first, second = measured.with_ratios(rows)
    assert second["ratio"] == second["seconds"] / first["seconds"]
    assert first["ns_per_pixel"] == pytest.approx(first["seconds"] * 1e9 / (64 * 96))
    assert min(first["peak_bytes"], second["peak_bytes"]) > 4 * 16 * 24 * 16
    if kind == "training":
        assert first["peak_bytes"] > first["saved_bytes"] > 4 * 16 * 24 * 16
        assert second["saved_ratio"] < 0.5
    else:
        assert second["bf16_ratio"] == second["bf16_seconds"] / second["seconds"]
    assert "| 64x96 | narrow |" in benchmark.to_markdown("Backbones", [first, second])


def test_onnxruntime_rows(narrow):
    (row,) = benchmark.benchmark_onnxruntime(1, [(64, 96)], ["narrow"])
    assert (row["case"], row["name"]) == ("64x96", "narrow")
    assert 0 < row["low"] <= row["seconds"]


@pytest.mark.parametrize("name", [name for name, (cfg, _) in benchmark.BACKBONES.items() if "mmlisa." in cfg["type"]])
def test_listed_channels_are_the_backbones(name):
    cfg, channels = benchmark.BACKBONES[name]
    with torch.device("meta"):
        assert benchmark.build_backbone(cfg, training=True).feature_channels == channels


@pytest.mark.parametrize("name", [*command.BLOCKS, *command.NETWORKS])
def test_suites_of_papers_build(name):
    suite = benchmark.SUITES[name]
    for cfg in suite.get("networks", {}).values():
        if "mmlisa." in cfg["type"]:
            with torch.device("meta"):
                benchmark.build_backbone(cfg, training=True)
    if name in command.BLOCKS:
        rows = benchmark.benchmark_blocks(1, "cpu", **{**suite, "grids": suite["grids"][:1]})
        assert [row["name"] for row in rows] == list(suite["attention"])


def test_mistakes_in_the_arguments_are_named():
    for words, message in (
        (["--models", "Swin"], "--models: unknown Swin; choose from .*Swin-T"),
        (["--size", "64x96", "--suite", "latency", "blocks"], "--size: the suites blocks have"),
    ):
        with pytest.raises(ValueError, match=message):
            command.main(command.parse_args(words))
