"""The committed measurements are drawn again, with the numbers that the tables have."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from research import benchmark_plots
from research.benchmark import BASELINE

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


@pytest.fixture
def figures(monkeypatch):
    """Figures instead of files."""
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: saved.append(figure))
    return saved


def rows_of(suite):
    return json.loads((FOLDER / f"{suite}_cpu.json").read_text())["rows"]


def texts(axis):
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("suite", ["backbones", "pixels", "detectors"])
def test_ratios_of_networks(suite, figures):
    rows = rows_of(suite)
    benchmark_plots.plot_suite(suite, rows, Path("x.png"))
    time, memory = figures[0].axes
    expected = [f"{row['ratio']:.2f}" for row in rows if row["name"] != BASELINE]
    assert sorted(texts(time)) == sorted(expected), "the table's column"
    assert [bar.get_y() + bar.get_height() for bar in time.patches] == pytest.approx(
        [row["ratio"] for row in rows if row["name"] != BASELINE]
    )
    assert len(memory.patches) == len(time.patches)


@pytest.mark.parametrize("chosen", [["iViT-T", "ResNet-50"], ["iViT-T"]])
def test_without_the_baseline_ratios_are_to_the_first(chosen, figures):
    rows = [row for row in rows_of("backbones") if row["name"] in chosen]
    benchmark_plots.plot_suite("training", rows, Path("x.png"))
    time, _ = figures[0].axes
    assert time.get_ylabel() == "time / iViT-T's"
    by_name = {name: [row["seconds"] for row in rows if row["name"] == name] for name in chosen}
    expected = [a / b for a, b in zip(by_name[chosen[-1]], by_name["iViT-T"], strict=True)]
    assert [bar.get_y() + bar.get_height() for bar in time.patches] == pytest.approx(expected)


def test_speed_of_operators(figures):
    rows = rows_of("operators")
    benchmark_plots.plot_suite("operators", rows, Path("x.png"))
    assert len(figures[0].axes) == 2
    for axis, mode in zip(figures[0].axes, ("forward", "forward + backward"), strict=True):
        mine = [row["speedup"] for row in rows if row["mode"] == mode and row["name"] != "pseudo-code"]
        assert [bar.get_y() + bar.get_height() for bar in axis.patches] == pytest.approx(mine)


def test_scaling(figures):
    rows = rows_of("scaling")
    benchmark_plots.plot_suite("scaling", rows, Path("x.png"))
    time, _ = figures[0].axes
    (lisa,) = [line for line in time.lines if line.get_label() == "LiSA"]
    assert lisa.get_ydata().tolist() == [1e3 * row["seconds"] for row in rows if row["name"] == "LiSA"]


def test_accuracy_is_the_papers_and_time_ours(figures):
    rows = rows_of("backbones")
    benchmark_plots.plot_accuracy_over_runtime(rows, Path("x.png"))
    (axis,) = figures[0].axes
    assert axis.get_ylabel().startswith("paper:")
    assert set(texts(axis)) == set(benchmark_plots.PAPER_TOP1) & {row["name"] for row in rows}
    points = {text.get_text(): text.xy for text in axis.texts}
    (ivit,) = [row for row in rows if row["name"] == "iViT-T" and row["case"] == "224x224"]
    assert points["iViT-T"] == pytest.approx((1e3 * ivit["seconds"], 83.6))
