"""Accuracy over the size of the test images."""

from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from mmlisa.training.config import find_test_pipeline
from mmlisa.visualization.curves import METRICS, shown_metric

# Options of pipeline steps that set the size of an image.
_SIZES = ("scale", "crop_size")


def scale_test_images(cfg: Config, factor: float) -> None:
    """Multiply the sizes to which the test pipeline resizes and crops, in place.

    Raises:
        ValueError: a factor that is not positive, or a pipeline that resizes nothing.
    """
    if not factor > 0:
        raise ValueError(f"factor={factor}; it must be positive")
    changed = False
    for step in find_test_pipeline(cfg):
        for key in _SIZES:
            if (size := step.get(key)) is not None:
                step[key] = round(size * factor) if isinstance(size, int) else tuple(round(n * factor) for n in size)
                changed = True
    if not changed:
        raise ValueError(f"no step of the test pipeline has one of {_SIZES}: there is no size to change")


def choose_metrics(results: Mapping[float, Mapping[str, float]]) -> list[str]:
    """Return the metrics that :mod:`mmlisa.visualization.curves` draws, in the order of the first result."""
    return [name for name in next(iter(results.values())) if name.endswith(tuple(METRICS))]


def to_markdown(results: Mapping[float, Mapping[str, float]]) -> str:
    """Return a table with a row per factor."""
    names = choose_metrics(results)
    lines = ["| size | " + " | ".join(map(shown_metric, names)) + " |", "|---" * (1 + len(names)) + "|"]
    for factor, metrics in results.items():
        lines.append(f"| x{factor:g} | " + " | ".join(f"{metrics[name]:.3g}" for name in names) + " |")
    return "\n".join(lines)


def draw(results: Mapping[float, Mapping[str, float]], path: Path) -> None:
    """Write a line per metric over the factor."""
    from matplotlib.figure import Figure  # not pyplot, which holds global state

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name in choose_metrics(results):
        axes.plot(list(results), [metrics[name] for metrics in results.values()], marker="o", label=shown_metric(name))
    units = sorted({unit for end, unit in METRICS.items() for name in choose_metrics(results) if name.endswith(end)})
    axes.set(xscale="log", xlabel="size of the test images / the config's", ylabel=" / ".join(units))
    axes.set_xticks(list(results), [f"{factor:g}" for factor in results], minor=False)
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)
