"""Plots of the results of :mod:`research.benchmark`: ratios by network, speed by operator, growth with the tokens."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.benchmark import BASELINE, Row

# Top-1 on ImageNet-1K at 224x224 as the papers print it: (accuracy, where).
PAPER_TOP1 = {
    "HyLiSANet-S": (83.7, "LiSA, Table 5"),
    "LiSANet-S": (83.4, "LiSA, Table 5"),
    "FLatten-Swin-T": (82.1, "FLatten, Table 8"),
    "iViT-T": (83.6, "iViT, Table 5"),
    "MILA-T": (83.5, "MILA, code"),
    "H-ViT3-T": (84.0, "ViT³, code"),
    "Pola-Swin-T": (82.6, "PolaFormer, code"),
    "Swin-T": (81.3, "iViT, Table 5"),
    "ConvNeXt-T": (82.1, "iViT, Table 5"),
    "ResNet-50": (76.1, "LiSA, Table 5"),
    "PVTv2-B2": (82.0, "FLatten, Table 8"),
}
OURS = ("HyLiSANet-S", "LiSANet-S", "FLatten-Swin-T", "iViT-T", "MILA-T", "H-ViT3-T", "Pola-Swin-T", "LiSA")
_DARK, _PALE = ("#0b3954", "#087e8b", "#3fb8af", "#a3d9d3"), ("#5c4742", "#8d6f64", "#b9a394", "#ddd0c8")


def plot_suite(suite: str, rows: Sequence[Row], path: Path) -> None:
    """Write the plot of one suite.

    Args:
        suite: a name of ``tools/benchmark.py``.
        rows: the measurements.
        path: file to write.
    """
    if suite == "scaling":
        plot_scaling(rows, path)
    elif suite == "operators":
        plot_operators(rows, path)
    elif suite == "compile":
        plot_compile(rows, path)
    elif suite == "profile":
        plot_profile(rows, path)
    else:
        plot_networks(rows, path)


def plot_networks(rows: Sequence[Row], path: Path) -> None:
    """Plot time and memory relative to the baseline, or to the first network without it, as a group of bars per network."""
    names = _unique(rows, "name")
    reference = BASELINE if BASELINE in names else names[0]
    base = {row["case"]: row for row in rows if row["name"] == reference}
    names = [name for name in names if name != reference] or [reference]
    panels = {
        f"time / {reference}'s": lambda row: row["seconds"] / base[row["case"]]["seconds"],
        f"peak memory / {reference}'s": lambda row: row["peak_bytes"] / base[row["case"]]["peak_bytes"],
    }
    _draw_bars([row for row in rows if row["name"] in names], names, panels, path, log=False)


def plot_compile(rows: Sequence[Row], path: Path) -> None:
    """Plot the speed-up of compiled backbones, a bar per size; a failed compilation has no bar."""
    panels = {"speed / without torch.compile": lambda row: row.get("speedup_compiled", 0)}
    _draw_bars(rows, _unique(rows, "name"), panels, path, log=False)


def plot_profile(rows: Sequence[Row], path: Path) -> None:
    """Plot time by kind of operation, relative to the total of the baseline or the first network, as stacked bars."""
    cases = _unique(rows, "case")
    figure, axes = _figure(len(cases), 1, (8, (0.6 + 0.45 * len(_unique(rows, "name"))) * len(cases) + 1))
    for axis, case in zip(axes, cases, strict=True):
        mine = [row for row in rows if row["case"] == case][::-1]  # the first on top
        reference = next((row for row in mine if row["name"] == BASELINE), mine[-1])
        whole = sum(reference["seconds_by_kind"].values())
        left = np.zeros(len(mine))
        for kind in mine[0]["seconds_by_kind"]:
            width = np.array([row["seconds_by_kind"][kind] for row in mine]) / whole
            axis.barh([row["name"] for row in mine], width, left=left, label=kind)
            left += width
        axis.set(title=case, xlabel=f"time / {reference['name']}'s")
        axis.grid(visible=False, axis="y")
    axes[0].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)


def plot_operators(rows: Sequence[Row], path: Path) -> None:
    """Plot the speed-up over the pseudo-code for the forward pass and both passes: bars per operator and shape."""
    names = [name for name in _unique(rows, "name") if name != "pseudo-code"]
    panels = {
        f"speed / pseudo-code's, {mode}": lambda row, mode=mode: row["speedup"] if row["mode"] == mode else None
        for mode in _unique(rows, "mode")
    }
    _draw_bars([row for row in rows if row["name"] in names], names, panels, path, log=True)


def plot_scaling(rows: Sequence[Row], path: Path) -> None:
    """Plot time and memory of a layer over the number of tokens; there are ten colours, and dashes from the eleventh line on."""
    figure, axes = _figure(1, 2, (10, 4.2))
    panels = (("seconds", 1e3, "time (ms)"), ("peak_bytes", 1e-6, "peak extra memory (MB)"))
    for axis, (key, unit, label) in zip(axes, panels, strict=True):
        for number, name in enumerate(_unique(rows, "name")):
            mine = [row for row in rows if row["name"] == name and row[key] > 0]
            style = dict(linewidth=2.5 if name in OURS else 1.3, linestyle="-" if number < 10 else "--")
            axis.plot([r["tokens"] for r in mine], [unit * r[key] for r in mine], marker="o", label=name, **style)
        axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=label)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def plot_accuracy_over_runtime(rows: Sequence[Row], path: Path, case: str = "224x224") -> None:
    """Plot the top-1 accuracy that the papers report over our time per image.

    Args:
        rows: of the suite ``backbones``.
        path: file to write.
        case: image size of the time; the accuracies are those at 224x224.
    """
    figure, (axis,) = _figure(1, 1, (7, 4.5))
    points = []
    for row in rows:
        if row["case"] == case and row["name"] in PAPER_TOP1:
            accuracy, _ = PAPER_TOP1[row["name"]]
            time = 1e3 * row["seconds"] / row["batch"]
            spread = [[1e3 * (row["seconds"] - row["low"])], [1e3 * (row["high"] - row["seconds"])]]
            colour = _DARK[1] if row["name"] in OURS else _PALE[1]
            axis.errorbar(
                time, accuracy, xerr=np.array(spread) / row["batch"], fmt="o", color=colour, ecolor="0.8", elinewidth=1
            )
            points.append((time, accuracy, row["name"], colour))
    axis.set(
        xlabel=f"measured: ms per image, {case}, inference (median, quartiles)", ylabel="paper: ImageNet top-1 (%)"
    )
    axis.margins(x=0.15, y=0.12)
    _name_points(axis, points)
    figure.savefig(path, dpi=120)


def _name_points(axis: Any, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the name of each point on a side that is free of other names and points."""
    axis.figure.draw_without_rendering()  # the positions of the points are known only now
    height = 12.0  # points of the page
    scale = 72 / axis.figure.dpi
    places = [scale * axis.transData.transform((x, y)) for x, y, _, _ in points]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    for (x, y, name, colour), (left, bottom) in zip(points, places, strict=True):
        width = 6.0 * len(name)
        sides = [(-width / 2, 5), (-width / 2, -5 - height), (3, 5), (-3 - width, 5), (7, -4), (-7 - width, -4)]

        def overlap(side: tuple[float, float], left=left, bottom=bottom, width=width) -> float:
            a, b = left + side[0], bottom + side[1]
            return sum(
                max(0.0, min(a + width, east) - max(a, west)) * max(0.0, min(b + height, north) - max(b, south))
                for west, south, east, north in taken
            )

        dx, dy = min(sides, key=overlap)
        taken.append((left + dx, bottom + dy, left + dx + width, bottom + dy + height))
        axis.annotate(name, (x, y), xytext=(dx, dy), textcoords="offset points", color=colour, fontsize=9)


def _draw_bars(
    rows: Sequence[Row],
    names: Sequence[str],
    panels: Mapping[str, Callable[[Row], float | None]],
    path: Path,
    log: bool,
) -> None:
    """Draw a panel per value, with a group of bars per name, the number above each bar and a line at 1."""
    cases = _unique(rows, "case")
    figure, axes = _figure(len(panels), 1, (max(6.0, 0.36 * len(names) * (len(cases) + 1) + 1), 3.1 * len(panels)))
    for axis, (label, value) in zip(axes, panels.items(), strict=True):
        for row in rows:
            height = value(row)
            if height is None:
                continue
            group, place = names.index(row["name"]), cases.index(row["case"])
            colours = _DARK if row["name"] in OURS else _PALE
            x = group + 0.85 * ((place + 0.5) / len(cases) - 0.5)
            shade = colours[place * len(colours) // len(cases)]
            axis.bar(x, height - 1, 0.8 / len(cases), bottom=1, color=shade)
            text = f"{height:.2f}" if height < 10 else f"{height:.0f}"
            up = height >= 1
            axis.annotate(
                text, (x, height), xytext=(0, 2 if up else -2), textcoords="offset points", fontsize=7,
                ha="center", va="bottom" if up else "top",
            )  # fmt: skip
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(yscale="log" if log else "linear", ylabel=label, xticks=range(len(names)))
        axis.set_xticklabels(names)
        axis.grid(visible=False, axis="x")
        axis.margins(y=0.15)
    figure.supxlabel(f"bars from left to right: {', '.join(cases)}", fontsize="small")
    figure.savefig(path, dpi=120)


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, np.ndarray]:
    from matplotlib.figure import Figure  # not pyplot, which holds global state

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _unique(rows: Sequence[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))
