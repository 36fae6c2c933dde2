"""Curves of loss, learning rate and validation metrics of a run, and the hook that draws them."""

import json
from math import inf, isfinite
from pathlib import Path
from typing import BinaryIO

from mmengine.dist import master_only
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmlisa.registry import HOOKS

# Points (iteration, value) by the name under which MMEngine logs them: 'loss', 'loss_cls', 'lr', 'coco/bbox_mAP'.
Curves = dict[str, list[tuple[int, float]]]

METRICS = ("mAP", "mAP_50", "mAP_75", "mIoU", "aAcc", "top1")  # ends of the names of the metrics to draw


@HOOKS.register_module()
class TrainingCurvesHook(Hook):
    """Draw loss, learning rate and validation metrics over the whole training, resumed parts included.

    The hook reads the logs of the work dir, and writes ``curves.png`` beside the newest one after each validation and at the end
    of the training. If that fails, it logs a warning, and the training continues.
    """

    priority = "LOW"  # after MMEngine's LoggerHook, which writes the log

    @master_only
    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        try:
            draw_curves(read_curves(runner.work_dir), Path(runner.log_dir) / "curves.png")
        except OSError as error:
            runner.logger.warning(f"curves.png could not be written: {error}")

    def after_train(self, runner: Runner) -> None:
        self.after_val_epoch(runner)


def read_curves(work_dir: str | Path) -> Curves:
    """Read the curves of a work dir from all of its logs; a later log replaces the earlier ones from its first iteration on."""
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
                is_drawn = "loss" in name or name == "lr" or name.endswith(METRICS)
                if is_drawn and isinstance(value, int | float):
                    points.setdefault(name, {})[iteration] = value
    return {name: sorted(values.items()) for name, values in points.items() if values}


def draw_curves(curves: Curves, file: Path | BinaryIO) -> None:
    """Draw the curves of a run into a file, as PNG unless its name ends otherwise; a star marks the best point of each metric."""
    from matplotlib.figure import Figure  # not pyplot, which holds global state

    figure = Figure(figsize=(10, 4.5), layout="constrained")  # readable where a page shows it 1000 pixels wide
    panels = dict(zip(("loss in training", "learning rate", "validation"), figure.subplots(1, 3), strict=True))
    for name, points in sorted(curves.items()):
        is_metric = name.endswith(METRICS)
        panel = panels["validation" if is_metric else "learning rate" if name == "lr" else "loss in training"]
        (line,) = panel.plot(*zip(*points, strict=True), marker="." if is_metric else "", linewidth=1, label=name)
        if is_metric:
            best = max(points, key=lambda point: (isfinite(point[1]), point[1]))
            line.set_label(f"{name}: best {best[1]:.3g} at {best[0]}")
            panel.plot(*best, marker="*", markersize=11, color=line.get_color(), linestyle="none")
    for title, panel in panels.items():
        panel.set(title=title, xlabel="iteration", xlim=(0, None))
        panel.grid(alpha=0.3)
        if title != "validation":
            panel.set_ylim(0, None)
        if panel.lines:
            panel.legend(fontsize="small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.savefig(file, dpi=150)
