"""Curves of loss, learning rate and validation metrics of a run."""

import json
from math import inf, isfinite
from pathlib import Path
from typing import BinaryIO

import numpy as np

# Points (iteration, value) by the name under which MMEngine logs them: 'loss', 'loss_cls', 'lr', 'coco/bbox_mAP'.
Curves = dict[str, list[tuple[int, float]]]

# The metrics to draw, by the ends of their names, and their units.
METRICS = {"mAP": "0 to 1", "mAP_50": "0 to 1", "mAP_75": "0 to 1", "mIoU": "%", "aAcc": "%", "top1": "%"}


def read_curves(work_dir: str | Path) -> Curves:
    """Read the curves of a work dir from all of its logs. A later log replaces the earlier ones from its first iteration on.

    Raises:
        FileNotFoundError: the folder has no log.
    """
    logs = sorted(Path(work_dir).glob("*/vis_data/scalars.json"))
    if not logs:
        raise FileNotFoundError(f"{work_dir} has no log of a training (*/vis_data/scalars.json)")
    points: dict[str, dict[int, float]] = {}
    for log in logs:
        lines = log.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.endswith("}")]  # a full disk may have cut the last line
        first = next((entry["iter"] for entry in entries if "loss" in entry and "iter" in entry), inf)
        points = {name: {i: value for i, value in earlier.items() if i < first} for name, earlier in points.items()}
        iteration = max((i for earlier in points.values() for i in earlier), default=0)
        for entry in entries:
            # The step of a validation is its iteration or its epoch. It follows the last training entry in both cases.
            iteration = max(iteration, entry.get("step", 0)) if "loss" not in entry else entry.get("iter", iteration)
            for name, value in entry.items():
                is_drawn = "loss" in name or name == "lr" or name.endswith(tuple(METRICS))
                if is_drawn and isinstance(value, int | float):
                    points.setdefault(name, {})[iteration] = value
    return {name: sorted(values.items()) for name, values in points.items() if values}


def draw_curves(curves: Curves, file: Path | BinaryIO) -> None:
    """Draw the curves of a run into a file, as PNG unless its name ends otherwise; a star marks the best point of each metric.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # not pyplot, which holds global state

    figure = Figure(figsize=(10, 4.5), layout="constrained")  # readable where a page shows it 1000 pixels wide
    loss_axes, rate_axes, metric_axes = figure.subplots(1, 3)
    for name in sorted(name for name in curves if "loss" in name):
        total = name == "loss"
        loss_axes.plot(*_smooth(curves[name]), label=name, linewidth=2 if total else 1, zorder=3 if total else 2)
    if "lr" in curves:
        rate_axes.plot(*zip(*curves["lr"], strict=True))
    metrics = sorted(name for name in curves if name.endswith(tuple(METRICS)))
    for name in metrics:
        best = max(curves[name], key=lambda point: (isfinite(point[1]), point[1]))
        label = f"{name}: best {best[1]:.3g} at {best[0]}"
        (line,) = metric_axes.plot(*zip(*curves[name], strict=True), marker=".", label=label)
        metric_axes.plot(*best, marker="*", markersize=11, color=line.get_color(), linestyle="none")
    units = " / ".join(sorted({METRICS[end] for name in metrics for end in METRICS if name.endswith(end)}))
    loss_axes.set(title="loss in training", ylabel="mean over a fiftieth of the run", ylim=(0, None))
    rate_axes.set(title="learning rate", ylabel="first parameter group", ylim=(0, None))
    metric_axes.set(title="validation", ylabel=units)
    for axes in (loss_axes, rate_axes, metric_axes):
        axes.set(xlabel="iteration", xlim=(0, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.savefig(file, dpi=150)


def _smooth(points: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the moving average over about a fiftieth of the run, which shows the trend."""
    iterations, values = (np.array(column) for column in zip(*points, strict=True))
    window = max(1, len(values) // 50)
    return iterations[window - 1 :], np.convolve(values, np.ones(window) / window, mode="valid")
