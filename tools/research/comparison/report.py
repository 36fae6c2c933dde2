"""Report of a comparison: a table of means and deviations, plots, and one CSV line per run."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from .jobs import Job, image_sizes, read
from .suites import TASKS, Comparison

MIN_RUNS = 3  # of a candidate that a difference needs
Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """Accuracies of the runs of one candidate, in percent."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.values) if self.values else nan

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a run, with n - 1; nan for fewer than two runs."""
        return stdev(self.values) if len(self.values) > 1 else nan

    def __str__(self) -> str:
        if not self.values:
            return ""
        return f"{self.mean:.1f} ± {self.deviation:.1f}" if len(self.values) > 1 else f"{self.mean:.1f}"


def pooled_deviation(samples: Sequence[Sample]) -> float:
    """Return the standard deviation within candidates: the root of the mean of the variances, weighted by n - 1."""
    samples = [sample for sample in samples if len(sample.values) > 1]
    freedom = sum(len(sample.values) - 1 for sample in samples)
    squares = sum((len(sample.values) - 1) * sample.deviation**2 for sample in samples)
    return sqrt(squares / freedom) if freedom else nan


def difference(sample: Sample, other: Sample, pooled: float) -> str:
    """Return the difference of the means as text: ``'none'`` below two standard deviations, ``'?'`` for too few runs.

    The deviation is the larger one of the two candidates' and the pooled deviation. Two candidates whose few runs agree by chance
    are therefore not reported as different.
    """
    if min(len(sample.values), len(other.values)) < MIN_RUNS:
        return "?"
    value = sample.mean - other.mean
    return "none" if abs(value) < 2 * max(pooled_deviation([sample, other]), pooled) else f"{value:+.1f}"


def samples(comparison: Comparison, runs: Sequence[Row]) -> dict[float, dict[str, Sample]]:
    """Return the accuracies by scale and candidate."""
    return {
        scale: {
            name: Sample(tuple(run["accuracy"][str(scale)] for run in runs if run["candidate"] == name))
            for name in comparison.candidates
        }
        for scale in comparison.scales
    }


def write(jobs: Sequence[Job], root: Path, out: Path) -> str:
    """Write ``<comparison>.csv``, ``.md`` and ``.png`` from the results so far.

    Args:
        jobs: the jobs of one comparison.
        root: folder of the results.
        out: folder of the files.

    Returns:
        The Markdown.
    """
    name, comparison = jobs[0].name, jobs[0].comparison
    found = [result for job in jobs if job.candidate is not None and (result := read(job, root)) is not None]
    measured = next((result for job in jobs if job.candidate is None and (result := read(job, root))), None)
    write_runs(found, out / f"{name}.csv")
    text = to_markdown(comparison, found, measured)
    (out / f"{name}.md").write_text(text)
    if measured and (found or len(comparison.scales) > 1):
        plot(comparison, found, measured["rows"], out / f"{name}.png")
    return text


def write_runs(runs: Sequence[Row], path: Path) -> None:
    """Write one line per run: candidate, seed, accuracy in percent at each scale of the test images, and how it was trained."""
    scales = sorted({scale for run in runs for scale in run["accuracy"]}, key=float)
    rest = ("iterations", "training_seconds", "device", "commit")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["candidate", "seed", *(f"accuracy_x{float(scale):g}" for scale in scales), *rest])
        for run in sorted(runs, key=lambda run: (run["candidate"], run["seed"])):
            accuracies = [round(run["accuracy"][scale], 2) for scale in scales]
            writer.writerow([run["candidate"], run["seed"], *accuracies, *(run[name] for name in rest)])


def to_markdown(comparison: Comparison, runs: Sequence[Row], measured: Row | None) -> str:
    """Return a table of the candidates at the training size and, for several test sizes, a table over these."""
    unit = TASKS[comparison.task].unit
    by_scale = samples(comparison, runs)
    rows = {(row["candidate"], row["scale"]): row for row in measured["rows"]} if measured else {}
    at_one = by_scale[1.0]
    # The best candidate first, candidates without a training last.
    names = sorted(at_one, key=lambda name: -at_one[name].mean if at_one[name].values else inf)
    names = [name for name in names if at_one[name].values or (name, 1.0) in rows]
    pooled = pooled_deviation(list(at_one.values()))
    lines = [
        f"## {comparison.title}",
        "",
        f"| | {unit}, % | runs | to {comparison.baseline} | to the best | ms per image | parameters, M | MACs, M | "
        "peak MB, inference | peak MB, training |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        sample = at_one[name]
        cells = [
            name,
            str(sample),
            str(len(sample.values)),
            *(
                difference(sample, at_one[other], pooled) if sample.values and name != other else ""
                for other in (comparison.baseline, names[0])
            ),
            *_costs(rows.get((name, 1.0))),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", _notes(comparison, runs, measured, pooled)]
    if len(comparison.scales) > 1:
        lines += ["", *_over_sizes(comparison, by_scale, rows, names)]
    return "\n".join(lines) + "\n"


def _costs(row: Row | None) -> list[str]:
    if row is None:
        return [""] * 5
    return [
        f"{1e3 * row['seconds_per_image']['seconds']:.2f}",
        f"{row['params'] / 1e6:.3f}",
        f"{row['macs'] / 1e6:.1f}",
        f"{row['peak_bytes'] / 1e6:.1f}",
        f"{row['training_peak_bytes'] / 1e6:.1f}",
    ]


def _notes(comparison: Comparison, runs: Sequence[Row], measured: Row | None, pooled: float) -> str:
    seeds = ", ".join(map(str, sorted({run["seed"] for run in runs})))
    text = f"{comparison.iterations} iterations at {comparison.size}x{comparison.size}; "
    text += (
        f"seeds {seeds}; mean ± standard deviation over seeds (pooled over all rows: {pooled:.1f}). A difference below two "
        f"standard deviations is printed as 'none'; '?' marks fewer than {MIN_RUNS} runs."
        if runs
        else "nothing trained yet."
    )
    commits = {result["commit"] for result in (*runs, *([measured] if measured else []))}
    text += f" Commits: {', '.join(sorted(commits))}."
    if measured:
        text += (
            f" Time, memory and counts are those of the backbone at the training size: {measured['device']}, fp32, batch "
            f"{measured['batch']}, medians of {measured['rounds']} interleaved rounds."
        )
    return text


def _over_sizes(
    comparison: Comparison, by_scale: Mapping[float, Mapping[str, Sample]], rows: Mapping, names: Sequence[str]
) -> list[str]:
    heads = [f"{size}x{size}" for size in image_sizes(comparison)]
    lines = []
    if any(by_scale[1.0][name].values for name in names):
        lines += [f"| {TASKS[comparison.task].unit}, % at | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
        for name in names:
            lines.append(f"| {name} | {' | '.join(str(by_scale[scale][name]) for scale in comparison.scales)} |")
        lines.append("")
    columns = {"ms per image at": ("seconds_per_image", 1e3, "seconds"), "peak MB at": ("peak_bytes", 1e-6, None)}
    for title, (key, factor, part) in columns.items():
        lines += [f"| {title} | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
        for name in names:
            found = [rows.get((name, scale)) for scale in comparison.scales]
            values = [row and (row[key][part] if part else row[key]) for row in found]
            lines.append(f"| {name} | {' | '.join('' if v is None else f'{factor * v:.2f}' for v in values)} |")
        lines.append("")
    return lines[:-1]


def plot(comparison: Comparison, runs: Sequence[Row], rows: Sequence[Row], path: Path) -> None:
    """Plot accuracy over time and parameters; for several test sizes, plot time, memory and known accuracies over the size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5), layout="constrained")
    FigureCanvasAgg(figure)
    by_scale = samples(comparison, runs)
    cost = {(row["candidate"], row["scale"]): row for row in rows}
    (_plot_sizes if len(comparison.scales) > 1 else _plot_costs)(figure, comparison, by_scale, cost)
    for axis in figure.axes:
        axis.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    figure.suptitle(comparison.title)
    figure.savefig(path, dpi=100)


def _style(number: int, name: str) -> dict[str, Any]:
    return dict(marker="osv^D*P"[number % 7], color=f"C{number % 10}", label=name)


def _plot_costs(figure: Any, comparison: Comparison, by_scale: Mapping, cost: Mapping) -> None:
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axes = figure.subplots(1, 2, sharey=True)
    for number, (name, sample) in enumerate(by_scale[1.0].items()):
        if not sample.values:
            continue
        row = cost[name, 1.0]
        for axis, x in zip(axes, (1e3 * row["seconds_per_image"]["seconds"], row["params"] / 1e6), strict=True):
            axis.errorbar(x, sample.mean, sample.deviation, linestyle="", capsize=2, **_style(number, name))
    axes[0].set_xscale("log")  # an operator can take fifty times as long as another
    axes[0].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0].xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes[0].xaxis.set_minor_formatter(NullFormatter())
    axes[0].set(xlabel="ms per image", ylabel=f"{TASKS[comparison.task].unit}, %")
    axes[1].set_xlabel("parameters, M")


def _plot_sizes(figure: Any, comparison: Comparison, by_scale: Mapping, cost: Mapping) -> None:
    trained = any(sample.values for sample in by_scale[1.0].values())
    labels = ["ms per image", "peak MB, inference"] + [f"{TASKS[comparison.task].unit}, %"] * trained
    axes, sizes = figure.subplots(1, len(labels)), image_sizes(comparison)
    for number, name in enumerate(comparison.candidates):
        rows, style = [cost[name, scale] for scale in comparison.scales], _style(number, name)
        axes[0].plot(sizes, [1e3 * row["seconds_per_image"]["seconds"] for row in rows], **style)
        axes[1].plot(sizes, [row["peak_bytes"] / 1e6 for row in rows], **style)
        if trained:
            found = [by_scale[scale][name] for scale in comparison.scales]
            axes[2].errorbar(sizes, [s.mean for s in found], [s.deviation for s in found], capsize=2, **style)
    for axis, label in zip(axes, labels, strict=True):
        axis.set(xscale="log", xlabel="test size, pixels", ylabel=label)
        axis.set_xticks(sizes, sizes)
        axis.minorticks_off()
    axes[0].set_yscale("log")
    axes[1].set_yscale("log")
