"""The benchmark measures what it says: equal functions, interleaved, with the memory PyTorch really takes."""

import json
from collections import defaultdict

import pytest
import torch

from mmlisa import ops
from research import benchmark
from research.benchmark_plots import plot_suite

MACHINE = benchmark.Machine("CPU", 1, torch.__version__, flops=1e11, bandwidth=1e10)
SHAPE = ("5x6x32", 2, 32, 3, (5, 6))


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
    assert all(0 <= row["best"] <= row["low"] <= row["seconds"] <= row["high"] for row in rows.values())


def test_peak_memory_counts_what_lives_at_once():
    x = torch.zeros(1 << 20)
    one = benchmark.peak_extra_bytes(lambda: x + 1)
    assert one == pytest.approx(x.nbytes, rel=0.01)
    assert benchmark.peak_extra_bytes(lambda: ((x + 1) + 1) + 1) == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize("mode", ["forward", "forward + backward"])
def test_lisa_takes_a_fifth_of_the_pseudo_codes_memory(mode):
    """Memory, unlike time, is the same on every machine: 56x56x64 at batch 4."""
    forwards, trainings = benchmark.operator_candidates(4, 64, 8, (56, 56), "cpu")
    candidates = forwards if mode == "forward" else trainings
    peaks = {name: benchmark.peak_extra_bytes(candidates[name]) for name in ("LiSA", "pseudo-code")}
    assert peaks["LiSA"] <= peaks["pseudo-code"] / 5


def test_roofline_is_one_at_the_peak():
    assert MACHINE.roofline(1e11, 0, 1.0) == 1
    assert MACHINE.roofline(0, 1e10, 2.0) == 0.5


def test_operator_rows_and_report():
    rows = benchmark.benchmark_operators(1, "cpu", MACHINE, [SHAPE])
    names = {"LiSA", "pseudo-code", "reference", "softmax (SDPA)", "depthwise 7x7"}
    names |= {"MILA", "TTT (gated unit)", "polarity-aware", "RALA", "MALA", "InLine", "agent (49)"}
    assert {row["name"] for row in rows} == names
    assert {row["mode"] for row in rows} == {"forward", "forward + backward"}
    json.dumps(rows)
    text = benchmark.to_markdown("Operators", rows)
    assert text.count("\n| 5x6x32 |") == len(rows)
    assert "geometric mean" in text


def stand_in_times(monkeypatch, seconds):
    """Candidates take the seconds given by name instead of being timed, and as many bytes."""

    def time_in_turns(candidates, rounds, device="cpu", sample=0.05):
        return {name: dict(seconds=seconds[name], low=0.0, high=9.0, best=0.0) for name in candidates}

    def peak_extra_bytes(function, device="cpu"):
        name = next(name for name in seconds if current[name] is function)
        return int(1e6 * seconds[name])

    current = {}

    def remember(candidates, *args, **kwargs):
        current.update(candidates)
        return time_in_turns(candidates, *args, **kwargs)

    monkeypatch.setattr(benchmark, "time_in_turns", remember)
    monkeypatch.setattr(benchmark, "peak_extra_bytes", peak_extra_bytes)


def test_operator_ratios_are_of_the_pseudo_code_to_the_candidate(monkeypatch):
    """A speed-up is its time over ours, a share of memory ours over its: 4 s against 2 s is 2.00 and 0.50."""
    seconds = defaultdict(lambda: 1.0, {"LiSA": 2.0, "pseudo-code": 4.0, "reference": 16.0, "softmax (SDPA)": 8.0})
    stand_in_times(monkeypatch, seconds)
    rows = benchmark.benchmark_operators(1, "cpu", MACHINE, [SHAPE])
    for row in rows:
        assert row["speedup"] == 4 / seconds[row["name"]]
        assert row["memory_ratio"] == seconds[row["name"]] / 4
    lines = benchmark.to_markdown("Operators", rows).splitlines()
    (lisa,) = [line for line in lines if "| LiSA | forward |" in line]
    head = next(line for line in lines if line.startswith("| case"))
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, lisa)), strict=True))
    assert cells["speed / pseudo-code"] == "2.00"
    assert cells["memory / pseudo-code"] == "0.50"
    assert "Speed of LiSA over the pseudo-code, forward: geometric mean 2.00, least 2.00." in lines


def test_backbone_ratio_is_its_time_over_the_baselines(monkeypatch):
    monkeypatch.setattr(benchmark, "BASELINE", "b")
    stand_in_times(monkeypatch, {"a": 3.0, "b": 2.0})
    models = {"a": torch.nn.Identity(), "b": torch.nn.Identity()}
    rows = benchmark._benchmark_images(models, lambda model, image: model(image), 1, "cpu", [(4, 5)], batch=2)
    by_name = {row["name"]: row for row in rows}
    assert (by_name["a"]["ratio"], by_name["b"]["ratio"]) == (1.5, 1.0)
    assert by_name["a"]["images_per_second"] == pytest.approx(2 / 3)
    assert by_name["b"]["ns_per_pixel"] == pytest.approx(2e9 / 40)
    text = benchmark.to_markdown("Backbones", rows)
    assert [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("| 4x5")] == ["1.50", "1.00"]


def test_thresholds_lose_the_least_time():
    """Turning points that are not where a backend first loses, of backends that not every shape has."""

    def rows(side, name, *entries):
        return [dict(case=f"{n}", side=side, size=n, name=name, seconds=seconds) for n, seconds in entries]

    measured = [
        *rows("encode", "circulant", (9, 1), (16, 2.5), (25, 1), (36, 4), (49, 1.5)),
        *rows("encode", "fft", (9, 2), (16, 2), (25, 2), (36, 2), (49, 2)),
        *rows("mix", "circulant", (9, 3), (16, 4)),
        *rows("mix", "rows", (9, 1.0)),
        *rows("mix", "fft", (9, 2), (16, 2)),
    ]
    assert benchmark.tune(measured) == ({"circulant": 25}, {"rows": 9})


def test_backends_are_measured_at_the_sizes_of_the_table():
    rows = benchmark.measure_backends(1, "cpu", [(4, 2, (3, 3))])
    assert {(row["side"], row["name"]) for row in rows} == {
        (side, name) for side in ("encode", "mix") for name in ("circulant", "fft")
    }
    assert {row["size"] for row in rows if row["side"] == "encode"} == {9}
    assert {row["size"] for row in rows if row["side"] == "mix"} == {9 * (1 / 4 + 1 / 2)}


def test_backbone_rows(monkeypatch):
    narrow = dict(depths=(1, 1, 1, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    cfg = dict(type="mmlisa.LiSANet", arch=dict(base="hybrid-small", **narrow))
    monkeypatch.setitem(benchmark.BACKBONES, "narrow", (cfg, narrow["channels"]))
    monkeypatch.setattr(benchmark, "BASELINE", "narrow")
    rows = benchmark.benchmark_backbones(1, "cpu", ["narrow"], [(32, 64)])
    assert [(row["case"], row["name"], row["ratio"]) for row in rows] == [("32x64", "narrow", 1.0)]
    assert "| 32x64 | narrow |" in benchmark.to_markdown("Backbones", rows)


def test_saved_bytes_are_those_of_the_formula():
    """A linear layer keeps its input, GELU its own; once each, whoever keeps them; no parameters."""
    x, model = torch.randn(6, 4, requires_grad=True), torch.nn.Linear(4, 8)
    assert benchmark.saved_bytes(lambda: model(x), model) == 4 * 6 * 4
    assert benchmark.saved_bytes(lambda: torch.nn.functional.gelu(model(x)) + model(x[:3]).sum(), model) == 4 * 6 * (
        4 + 8
    )


def test_compiled_rows_name_what_failed(monkeypatch, tmp_path):
    """Two backbones, of which the second is one that a made-up compiler refuses."""
    narrow = dict(depths=(1, 1, 1, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    for base in ("hybrid-small", "small"):
        cfg = dict(type="mmlisa.LiSANet", arch=dict(base=base, **narrow))
        monkeypatch.setitem(benchmark.BACKBONES, base, (cfg, narrow["channels"]))

    class Compiled(torch.nn.Module):  # like torch's: the model is a child, and its weights have other names
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, image):
            if self.model.arch["mixers"] == "AAAA":
                raise NotImplementedError("no L\nmore lines")
            return self.model(image)

    monkeypatch.setattr(torch, "compile", lambda model, **_: Compiled(model))
    rows = benchmark.benchmark_compile(1, "cpu", ["hybrid-small", "small"], [(32, 64)])
    assert rows[0]["error"] == 0
    assert rows[0]["speedup_compiled"] > 0
    assert rows[1]["failure"] == "NotImplementedError: no L"
    assert "| 32x64 | small | NotImplementedError: no L |" in benchmark.to_markdown("Compile", rows)
    plot_suite("compile", rows, tmp_path / "compile.png")
    plot_suite("compile", rows[1:], tmp_path / "none.png")  # no compiler on the machine: every backbone fails
    for name in ("compile.png", "none.png"):
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("aten::addmm", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "matrix products"),
        ("aten::convolution_backward", "convolutions"),
        ("aten::_fft_c2c", "FFTs"),
        ("aten::_softmax_backward_data", "activations"),
        ("aten::clamp_min", "activations"),
        ("aten::threshold_backward", "activations"),
        ("aten::expand", benchmark.REST),
        ("aten::normal_", benchmark.REST),
        ("aten::native_layer_norm_backward", "norms"),
        ("aten::copy_", "copies"),
        ("aten::mul", "element-wise, sums"),
        ("aten::empty", benchmark.REST),
        ("mmlisa::lisa_mix_fft", benchmark.REST),  # what it calls is counted by itself
    ],
)
def test_kinds_of_operations(event, kind):
    assert benchmark._kind(event) == kind


def test_profile_against_a_network_of_known_operations(monkeypatch, tmp_path):
    """Of a convolution and an FFT nothing is a matrix product; of linear layers nearly all is."""
    monkeypatch.setitem(benchmark.BACKBONES, "filter", ({}, ()))
    monkeypatch.setitem(benchmark.BACKBONES, "mlp", ({}, ()))
    filtering, mlp = torch.nn.Conv2d(3, 8, 3), torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))

    class Model(torch.nn.Module):
        def __init__(self, maps):
            super().__init__()
            self.maps = maps
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, image):
            return [self.maps(image * self.weight)]

    models = iter([Model(lambda x: torch.fft.fft2(filtering(x)).abs()), Model(mlp)])
    monkeypatch.setattr(benchmark, "build_backbone", lambda *_, **__: next(models))
    rows = benchmark.benchmark_profile(2, "cpu", ["filter", "mlp"], [(512, 512)])
    shares = [{k: t / sum(row["seconds_by_kind"].values()) for k, t in row["seconds_by_kind"].items()} for row in rows]
    assert shares[0]["matrix products"] == 0
    assert min(shares[0]["convolutions"], shares[0]["FFTs"]) > 0.02
    assert shares[1]["matrix products"] > 0.5
    assert shares[1]["convolutions"] == shares[1]["FFTs"] == 0
    assert "matrix products" in benchmark.to_markdown("Profile", rows).splitlines()[-1]
    plot_suite("profile", rows, tmp_path / "profile.png")
    assert (tmp_path / "profile.png").stat().st_size > 5000


@pytest.mark.parametrize("options", [dict(amp=True), dict(whole=True), dict(with_cp=True)])
def test_training_rows(monkeypatch, options):
    if "whole" in options:  # once is enough: the heads take most of the time
        monkeypatch.setattr(benchmark, "peak_extra_bytes", lambda function, device: 1 << 40)
        once = dict(seconds=1.0, low=1.0, high=1.0, best=1.0)
        monkeypatch.setattr(
            benchmark, "time_in_turns", lambda candidates, *_: {n: (f(), once)[1] for n, f in candidates.items()}
        )
    narrow = dict(depths=(1, 1, 1, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    cfg = dict(type="mmlisa.LiSANet", arch=dict(base="hybrid-small", **narrow))
    monkeypatch.setitem(benchmark.BACKBONES, "narrow", (cfg, narrow["channels"]))
    monkeypatch.setattr(benchmark, "BASELINE", "narrow")
    (row,) = benchmark.benchmark_training(1, "cpu", ["narrow"], [(64, 96)], **options)
    assert (row["case"], row["ratio"]) == ("64x96", 1.0)
    assert row["mode"] == ("AMP" if "amp" in options else "fp32, with_cp" if "with_cp" in options else "fp32")
    text = benchmark.to_markdown("Training", [row])
    if "with_cp" in options:
        assert "saved" not in text
    else:
        assert row["peak_bytes"] > row["saved_bytes"] > 4 * 16 * 24 * 16
        assert text.rstrip().endswith("| 1.00 |")


@pytest.mark.parametrize("name", [name for name, (cfg, _) in benchmark.BACKBONES.items() if "mmlisa." in cfg["type"]])
def test_listed_channels_are_the_backbones(name):
    cfg, channels = benchmark.BACKBONES[name]
    with torch.device("meta"):
        assert benchmark.build_backbone(cfg).feature_channels == channels


def test_tables_are_in_milliseconds_and_megabytes():
    row = dict(case="a", name="b", seconds=0.0123, low=0.011, high=0.0145, peak_bytes=5_200_000, saved_bytes=7_250_000)
    head, _, line = benchmark.to_markdown("Title", [row]).splitlines()[2:5]
    cells = dict(zip(*([cell.strip() for cell in part.split("|")] for part in (head, line)), strict=True))
    assert cells["median ms (quartiles)"] == "12.3 (11-14.5)"
    assert cells["peak extra MB"] == "5.2"
    assert cells["saved MB"] == "7.2"
