"""The run on a GPU, on a CPU: what is wrong is found, what is not measured is said, and all parts run."""

import json
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from inspect import isfunction
from itertools import chain, islice, repeat
from types import SimpleNamespace

import pytest
import torch

import benchmark as command
import pages
from helpers.pages import ROOT
from mmlisa import ops
from research import benchmark, gpu

CPU = gpu.Setting("cpu", tiny=True)


def test_every_operator_is_checked():
    others = {"at_least_fp32", "beyond_fp16", "no_autocast"}
    checked = {name for names in gpu._DATA["operators"].values() for name in names}
    assert checked == {name for name in ops.__all__ if isfunction(getattr(ops, name))} - others


def test_operators_agree_with_their_references():
    cases = [case for case in gpu.numerics(CPU) if case[0]["table"] == "Operators"]
    assert len(cases) == 40
    assert not [(columns, row) for columns, check in cases if (row := check())["failed"]]


@pytest.mark.parametrize(
    "mistake",
    [lambda y: 1.001 * y, lambda y: y + 1e-3 * (y - y.detach()), lambda y: y * torch.nan, lambda y: y[..., :-1]],
    ids=["value", "gradient", "nan", "shape"],
)
def test_a_wrong_operator_fails(monkeypatch, mistake):
    def wrong(query, key, value, *, backend="auto"):
        y = ops.inline(query, key, value, backend=backend)
        return y if backend == "reference" else mistake(y)

    monkeypatch.setitem(gpu._FORMS, "inline", wrong)
    assert "fp32" in gpu.check_operator(CPU, "inline", "bhnd bhnd bhnd", "auto")["failed"].split(", ")


def test_backbones_are_compared_and_need_autocast(monkeypatch):
    torch.manual_seed(0)
    assert gpu.check_backbone(CPU, "FLattenDeiT")["failed"] == ""
    monkeypatch.setattr(gpu.Setting, "autocast", lambda *_: nullcontext())
    assert gpu.check_backbone(CPU, "FLattenDeiT")["failed"] == "bf16, fp16"


def test_a_broken_graph_raises(monkeypatch):
    def build(*_):
        model = torch.nn.Conv2d(3, 4, 3)
        model.register_forward_pre_hook(lambda *_: torch._dynamo.graph_break())
        return model

    assert gpu.check_compiled(CPU, "LCNet", training=False) == {"graph breaks": 0}
    monkeypatch.setattr(gpu, "build_smallest", build)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        gpu.check_compiled(CPU, "LCNet", training=False)


def test_recomputation_is_switched_off(monkeypatch):
    measure = lambda self, step: {"saved": benchmark.saved_bytes(step, torch.nn.Identity())}  # noqa: E731
    monkeypatch.setattr(gpu.Setting, "time", measure)
    cfg = gpu.OURS["HyLiSANet-S"]
    lean, plain = (gpu.run_training(CPU, cfg, "fp32", mode)["saved"] for mode in ("", "no recomputation"))
    assert lean < 0.95 * plain  # both with the weights


def test_gradients_that_are_zero_or_infinite_are_refused():
    x = torch.ones(2, requires_grad=True)
    assert gpu.step_of(lambda: [2 * x], [x])()[0].shape == x.shape
    for wrong in (lambda: [0 * x], lambda: [x.log() / 0]):
        with pytest.raises(FloatingPointError):
            gpu.step_of(wrong, [x])


def test_exceptions_and_rows_after_the_deadline_are_named_and_an_interrupt_ends_the_run():
    def fail(error):
        raise error

    def fill(*checks, deadline=float("inf")):
        rows, saves = [], []
        cases = iter([(dict(table="t"), check) for check in checks])
        gpu.fill(rows, cases, CPU._replace(tiny=False), deadline, lambda: saves.append(len(rows)))
        assert saves == [*range(1, len(checks) + 1)]
        return rows

    out_of_memory = partial(fail, RuntimeError("CUDA out of memory.\nTried to allocate"))
    rows = [dict(table="t", error="RuntimeError: CUDA out of memory."), dict(table="t", ms=1)]
    assert fill(out_of_memory, lambda: {"ms": 1}) == rows
    assert fill(dict, deadline=0) == [dict(table="t", error=gpu.LATE)]
    with pytest.raises(KeyboardInterrupt):
        fill(partial(fail, KeyboardInterrupt()))


def test_a_gpus_time_lies_between_events_after_the_warm_up(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 3.0

    fake = SimpleNamespace(Event=Event, synchronize=lambda: log.append("synchronize"))
    monkeypatch.setattr(torch, "cuda", fake)
    (row,) = benchmark.time_in_turns({"a": lambda: log.append("call")}, rounds=1, device="cuda", sample=0.006).values()
    one, two = (["synchronize", "record", *["call"] * calls, "record", "wait"] for calls in (1, 2))
    assert log == ["call"] * 3 + one + two
    assert row["seconds"] == pytest.approx(1.5e-3)


def test_ratios_and_the_fastest_backend(monkeypatch):
    """With times: 2 ms for the first call, 1 ms for the others."""

    def measure(number, count):
        times, rows = chain([2e-3], repeat(1e-3)), []
        timed = lambda *_: dict(seconds=next(times), low=1e-3, high=3e-3, peak_bytes=1e6)  # noqa: E731
        monkeypatch.setattr(gpu.Setting, "time", timed)
        gpu.fill(rows, islice(gpu.PARTS[number].cases(CPU), count), CPU, 0, lambda: None)
        return rows

    rows = measure(2, 3)
    assert [row["name"] for row in rows] == ["softmax (matrix)", "LiSA", "softmax"]
    assert rows[1]["self-attention / this"] == rows[2]["self-attention / this"] == 2
    assert rows[1]["printed ratio"] == pytest.approx(0.9 / 1.2)
    table = gpu.to_markdown(dict(title="t", machine="m", note="n", rows=rows))
    assert "| 7x7 | LiSA | inference, fp32 | 1 (1-3) | 1.0 |" in table
    assert [(row["fastest"], row["circulant's limit"]) for row in measure(3, 2)] == [("circulant", 49), ("fft", 49)]


@pytest.mark.parametrize("row", [dict(failed="fp32"), dict(error="RuntimeError: -"), dict(failed="")])
def test_a_failure_of_part_1_is_the_exit_status_and_other_parts_stay(tmp_path, monkeypatch, row):
    file, columns = tmp_path / "gpu.json", dict(table="t", case="", name="a")
    file.write_text('{"2": {"rows": []}}')
    monkeypatch.setitem(gpu.PARTS, 1, gpu.Part("Numerics", 1, lambda _: iter([(columns, lambda: row)])))
    wrong = nullcontext() if row == dict(failed="") else pytest.raises(SystemExit, match="part 1: 1 of 1 rows")
    with wrong:
        gpu.run(CPU, (1,), file, float("inf"), "abc")
    parts = json.loads(file.read_text())
    assert list(parts) == ["2", "1"]
    assert parts["1"]["rows"] == [columns | row]
    assert "commit abc" in parts["1"]["machine"]


def test_the_page_shows_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    assert pages.gpu() == "Not measured yet.\n"
    (tmp_path / "benchmarks").mkdir()
    rows = [dict(table="A table", case="7x7", name="LiSA", seconds=0.001, low=0.001, high=0.002, error="a|b")]
    part = dict(
        title="2: Papers", machine="H100", note="3 s.", rows=[*rows, dict(table="A table", case="7x7", name="other")]
    )
    (tmp_path / "benchmarks" / "gpu.json").write_text(json.dumps({"2": part}))
    assert "| 7x7 | LiSA | 1 (1-2) | a/b |\n| 7x7 | other |  |  |" in pages.gpu()


def test_a_cpu_measures_nothing(capsys):
    with pytest.raises(SystemExit):
        command.parse_args(["gpu", "--device", "cpu"])
    assert "--tiny" in capsys.readouterr().err


@pytest.mark.nightly
def test_tiny_run(tmp_path):
    """All parts, as the command runs them."""
    words = [sys.executable, "tools/benchmark.py", "gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    parts = json.loads((tmp_path / "gpu_tiny.json").read_text())
    assert list(parts) == list("123456")
    rows = [row for part in parts.values() for row in part["rows"]]
    assert not [row for row in rows if "error" in row or "seconds" in row]
    assert not [row for row in rows for name in ("fft", "circulant", "dft", "rows") if row.get(name)]
