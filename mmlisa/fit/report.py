"""The report of a training: what the model finds, what it confuses, and the images on which it is worst.

Written twice from the same sections: ``report.html``, with its pictures inside, and ``report.md``, with pictures in ``report/``.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mmlisa.checkpoints.writing import writing_whole
from mmlisa.visualization.curves import draw_curves, read_curves
from mmlisa.visualization.overlays import Classes, draw_prediction

from .evaluation import IOU, SCORE, evaluate_labels, evaluate_maps, evaluate_objects, find_worst, mean

_MOST_LABELS = 30  # classes; with more, a matrix has no names


@dataclass
class Section:
    """A part of the report; what is empty is left out."""

    title: str
    text: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()  # the first row is the head
    pictures: Sequence[tuple[Path, str]] = ()  # with captions
    code: Sequence[str] = ()


def write_report(
    folder: Path,
    *,
    task: str,
    classes: Sequence[str],
    root: Path,
    split: str,
    summary: Sequence[str],
    commands: Mapping[str, str],
    label_map: Mapping[int, int] | None = None,
) -> str:
    """Writes ``report.html`` and ``report.md`` from the results of a test.

    Args:
        folder: of the training, with its logs in ``train/``, ``data/<split>.json`` or ``.txt`` and the predictions in ``test/``.
        task: ``'detection'``, ``'segmentation'`` or ``'classification'``.
        classes: their names.
        root: folder of the images.
        split: which images were tested on.
        summary: sentences about the data and the training.
        commands: what to do next, by its description.
        label_map: values of class maps that stand for others.

    Returns:
        The main result, as a sentence.

    Raises:
        OSError: predictions are missing, or the report cannot be written.
    """
    evaluate, unit = {
        "detection": (evaluate_objects, f"Objects; detections from a score of {SCORE} on"),
        "segmentation": (evaluate_maps, "Pixels"),
        "classification": (evaluate_labels, "Images"),
    }[task]
    result = evaluate(folder, root, split, list(classes), dict(label_map or {}))
    pictures = folder / "report"
    pictures.mkdir(exist_ok=True)
    draw_curves(read_curves(folder / "train"), pictures / "curves.png")
    draw_confusion(result.confusion, [*classes, "nothing"][: len(result.confusion)], pictures / "confusion.png")
    drawings = [(pictures / "confusion.png", f"{unit}. Rows are annotations, columns predictions.")]
    if result.precision is not None:
        _draw_precision(result.precision, classes, pictures / "precision.png")
        overlap = f" at an overlap (IoU) of {IOU}" if task == "detection" else ""
        drawings.append((pictures / "precision.png", f"Precision over recall of each class{overlap}."))
    if result.sides is not None:
        _draw_sides(*result.sides, pictures / "sizes.png")
        found, missed = map(len, result.sides)
        caption = f"Sizes of the {found} objects found and the {missed} missed or taken for another class"
        caption += f", at a score of {SCORE} and an overlap of {IOU}."
        drawings.append((pictures / "sizes.png", caption))
    worst = []
    for number, (path, _, caption) in enumerate(find_worst(result.images), 1):
        target, picture = pictures / f"worst_{number:02d}.jpeg", cv2.imread(str(root / path))
        if picture is not None:
            drawn = draw_prediction(
                picture[..., ::-1],
                result.sample(path),
                Classes({"classes": tuple(classes)}),
                score_threshold=SCORE,
                with_truth=True,
            )
            cv2.imwrite(str(target), drawn[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
            worst.append((target, f"{path}: {caption}"))
    sides = [] if task == "classification" else ["Annotations are on the left, predictions on the right."]
    curves = [(pictures / "curves.png", "Loss, learning rate and validation; a star marks the best value.")]
    sections = [
        Section("Data and training", summary, pictures=curves),
        Section("Results per class", table=result.table, pictures=drawings),
        Section(f"The {len(worst)} images with the largest errors", sides, pictures=worst),
        Section("Next", code=[line for text, line in commands.items() for line in (f"# {text}", line)]),
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name.startswith("report.html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline"] = _as_data
    environment.filters["relative"] = lambda path: path.relative_to(folder).as_posix()
    for name in ("report.html", "report.md"):
        text = environment.get_template(f"{name}.jinja").render(
            title=f"{folder.name}: {task}", score=result.score, sections=sections
        )
        with writing_whole(folder / name) as file:
            file.write(text.encode())
    return result.score


def _as_data(path: Path) -> str:
    """A picture as a ``data:`` URL."""
    return f"data:image/{path.suffix[1:]};base64,{base64.b64encode(path.read_bytes()).decode()}"


# --- drawings ----------------------------------------------------------------------------------------------------------------


@contextmanager
def _axes(path: Path, width: float, height: float) -> Iterator[Any]:
    """The axes of a figure that is then saved."""
    from matplotlib.figure import Figure  # no pyplot: it holds global state

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    yield axes
    figure.savefig(path, dpi=110)


def draw_confusion(counts: np.ndarray, names: Sequence[str], path: Path) -> None:
    """Draw a confusion matrix ``[annotated, predicted]``; colours are shares of a row."""
    number = len(names)
    side = min(12, 2.5 + 0.45 * number)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    with _axes(path, side + 1, side) as axes:
        axes.figure.colorbar(axes.imshow(shares, cmap="Blues", vmin=0, vmax=1), label="share of the row", shrink=0.8)
        axes.set(xlabel="prediction", ylabel="annotation")
        if number <= _MOST_LABELS:
            axes.set_xticks(range(number), names, rotation=45, ha="right")
            axes.set_yticks(range(number), names)
        for i, j in np.argwhere(counts) if number <= 15 else ():
            text = str(counts[i, j]) if counts.max() < 10_000 else f"{shares[i, j]:.0%}"
            colour = "white" if shares[i, j] > 0.5 else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)


def _draw_precision(precision: np.ndarray, names: Sequence[str], path: Path) -> None:
    recall, shown, colours = np.linspace(0, 1, 101), len(names) <= 12, Classes({"classes": tuple(names)})
    with _axes(path, 7, 4.5) as axes:
        for index, (name, values) in enumerate(zip(names, precision, strict=True)):
            colour = np.array(colours.colour(index)) / 255
            axes.plot(recall, values, label=name if shown else None, linewidth=1, color=colour)
        axes.plot(recall, [mean(values) for values in precision.T], label="mean", linewidth=2.5, color="black")
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
        axes.grid(alpha=0.3)
        axes.figure.legend(loc="outside right", frameon=False, fontsize="small")


def _draw_sides(found: list[float], missed: list[float], path: Path) -> None:
    sides = [*found, *missed] or [1.0]
    bins = np.geomspace(max(1, min(sides)), max(2, *sides) * 1.001, 16)
    with _axes(path, 7, 3.5) as axes:
        axes.hist([found, missed], bins, stacked=True, label=["found", "missed"], color=["#2a9d5c", "#d1495b"])
        axes.set(xscale="log", xlabel="square root of the object's area, in pixels of the image", ylabel="objects")
        ticks = [digit * 10**power for power in range(5) for digit in (1, 2, 5)]
        ticks = [tick for tick in ticks if bins[0] <= tick <= bins[-1]]
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.figure.legend(loc="outside right", frameon=False)
