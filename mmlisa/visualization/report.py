"""The report of a training: what the model finds, what it confuses, and the images on which it is worst.

Written twice from the same sections: ``report.html``, with its pictures inside, and ``report.md``, with pictures in ``report/``.
"""

import base64
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from mmlisa.checkpoints.writing import writing_whole

from .curves import draw_curves, read_curves
from .overlays import Classes, draw_prediction

SCORE, IOU = 0.3, 0.5  # a detection counts from this score on, and finds an object that it overlaps by this much
NUM_WORST = 12
_MOST_LABELS = 30  # classes; with more, a matrix has no names
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid #ddd}img{max-width:100%}pre{background:#f5f5f5;padding:.8rem;
overflow-x:auto}table{border-collapse:collapse}td,th{padding:.25rem .9rem;border-bottom:1px solid #e5e5e5;text-align:right}
td:first-child,th:first-child{text-align:left}figure{margin:1.2rem 0}figcaption{color:#666;font-size:.9rem}
.score{font-size:1.5rem;color:#1a7340}.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(26rem,1fr));gap:1rem}
.grid figure{margin:0}"""


@dataclass
class Section:
    """A part of the report; what is empty is left out."""

    title: str
    text: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()  # the first row is the head
    pictures: Sequence[tuple[Path, str]] = ()  # with captions
    code: Sequence[str] = ()


@dataclass
class Evaluation:
    """What a test says, per class and per image.

    Attributes:
        score: the main result, as a sentence.
        table: results per class, the head first.
        confusion: [annotated, predicted], counts of objects, pixels or images; of detection, the last row and column are the
            background.
        images: path, error (the larger, the worse) and a caption, of each image.
        sides: of detection, the square roots of the areas of found and of missed objects.
        precision: of each class, precision at 101 values of recall from 0 to 1; NaN where there are no objects.
    """

    score: str
    table: list[list[str]]
    confusion: np.ndarray
    images: list[tuple[str, float, str]]
    sides: tuple[list[float], list[float]] | None = None
    precision: np.ndarray | None = None
    samples: dict[str, BaseDataElement] = field(default_factory=dict)  # of the worst images, to draw


def write_report(
    folder: Path,
    *,
    task: str,
    classes: Sequence[str],
    root: Path,
    split: str,
    summary: Sequence[str],
    seconds: Mapping[str, float],
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
        seconds: that each step took.
        commands: what to do next, by its description.
        label_map: values of class maps that stand for others.

    Returns:
        The main result, as a sentence.

    Raises:
        OSError: predictions are missing, or the report cannot be written.
    """
    evaluate, unit = {
        "detection": (_evaluate_objects, f"Objects; detections from a score of {SCORE} on"),
        "segmentation": (_evaluate_maps, "Pixels"),
        "classification": (_evaluate_labels, "Images"),
    }[task]
    result = evaluate(folder, root, split, list(classes), dict(label_map or {}))
    pictures = folder / "report"
    pictures.mkdir(exist_ok=True)
    draw_curves({"": read_curves(folder / "train")}, pictures / "curves.png")
    draw_confusion(result.confusion, [*classes, "nothing"][: len(result.confusion)], pictures / "confusion.png")
    drawings = [(pictures / "confusion.png", f"{unit}. Rows are annotations, columns predictions.")]
    if result.precision is not None:
        _draw_precision(result.precision, classes, pictures / "precision.png")
        overlap = f" at an overlap (IoU) of {IOU}" if task == "detection" else ""
        drawings.append((pictures / "precision.png", f"Precision over recall of each class{overlap}."))
    if result.sides is not None:
        _draw_sides(*result.sides, pictures / "sizes.png")
        found, missed = map(len, result.sides)
        caption = (
            f"Sizes of the {found} objects found and {missed} missed, at a score of {SCORE} and an overlap of {IOU}."
        )
        drawings.append((pictures / "sizes.png", caption))
    worst = []
    for number, (path, _, caption) in enumerate(sorted(result.images, key=lambda image: -image[1])[:NUM_WORST], 1):
        target, picture = pictures / f"worst_{number:02d}.jpeg", cv2.imread(str(root / path))
        if picture is not None:
            drawn = draw_prediction(
                picture[..., ::-1],
                result.samples[path],
                Classes({"classes": tuple(classes)}),
                score_threshold=SCORE,
                with_truth=True,
            )
            cv2.imwrite(str(target), drawn[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
            worst.append((target, f"{path}: {caption}"))
    sides = [] if task == "classification" else ["Annotations are on the left, predictions on the right."]
    curves = [(pictures / "curves.png", "Loss, learning rate and validation; a star marks the best value.")]
    times = [["step", "seconds"], *([name, f"{value:.0f}"] for name, value in seconds.items())]
    sections = [
        Section("Data and training", summary, pictures=curves),
        Section("Results per class", table=result.table, pictures=drawings),
        Section(f"The {len(worst)} images with the largest errors", sides, pictures=worst),
        Section("Time", table=times),
        Section("Next", code=[line for text, line in commands.items() for line in (f"# {text}", line)]),
    ]
    title = f"{folder.name}: {task}"
    for name, render in (("report.html", _as_html), ("report.md", _as_markdown)):
        with writing_whole(folder / name) as file:
            file.write(render(title, result.score, sections, folder).encode())
    return result.score


# --- the three tasks ---------------------------------------------------------------------------------------------------------


def _evaluate_objects(
    folder: Path, root: Path, split: str, classes: list[str], label_map: dict[int, int]
) -> Evaluation:
    from contextlib import redirect_stdout
    from io import StringIO

    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    kinds = [kind for kind in ("bbox", "segm") if (folder / "test" / f"predictions.{kind}.json").is_file()]
    by_kind: dict[str, Any] = {}
    with redirect_stdout(StringIO()):  # pycocotools prints tables
        truth = COCO(str(folder / "data" / f"{split}.json"))
        for kind in kinds:
            entries = json.loads((folder / "test" / f"predictions.{kind}.json").read_text())
            found = truth.loadRes(entries) if entries else COCO()
            by_kind[kind] = evaluation = COCOeval(truth, found, kind)
            if entries:
                evaluation.evaluate()
                evaluation.accumulate()
    boxes = by_kind["bbox"]
    empty = np.full((10, 101, len(classes)), -1.0)
    precision = {kind: each.eval["precision"][..., 0, -1] if each.eval else empty for kind, each in by_kind.items()}
    precision = {kind: np.where(values < 0, np.nan, values) for kind, values in precision.items()}
    counts = np.bincount([entry["category_id"] - 1 for entry in truth.anns.values()], minlength=len(classes))
    shown = {"bbox": "box", "segm": "mask"}
    table = [["class", "objects", *(f"{shown[kind]} {name}" for kind in kinds for name in ("AP", "AP50"))]]
    for index, name in enumerate(classes):
        values = [p[..., index] for kind in kinds for p in (precision[kind], precision[kind][:1])]
        table.append([name, str(counts[index]), *(f"{_mean(value):.3f}" for value in values)])
    score = "; ".join(
        f"{shown[kind]} AP {_mean(precision[kind]):.3f}, AP50 {_mean(precision[kind][0]):.3f}" for kind in kinds
    )
    confusion = np.zeros((len(classes) + 1, len(classes) + 1), int)
    images, sides, samples = [], ([], []), {}
    for image_id, image in truth.imgs.items():
        found = (
            [e for e in boxes.cocoDt.imgToAnns.get(image_id, []) if e["score"] >= SCORE] if boxes.cocoDt.anns else []
        )
        objects, found, pairs = match_image(truth.imgToAnns[image_id], found)
        wrong = 0
        for i, j in pairs:
            row = objects[i]["category_id"] - 1 if i is not None else -1
            column = found[j]["category_id"] - 1 if j is not None else -1
            confusion[row, column] += 1
            wrong += row != column
            if i is not None:
                sides[row != column].append(float(objects[i]["area"]) ** 0.5)
        missed, added = sum(j is None for _, j in pairs), sum(i is None for i, _ in pairs)
        caption = f"{missed} of {len(objects)} missed, {added} found where nothing is, {wrong - missed - added} of another class"
        images.append((image["file_name"], float(wrong), caption))
        samples[image["file_name"]] = image_id
    segments = by_kind["segm"].cocoDt if "segm" in by_kind else None
    worst = sorted(images, key=lambda entry: -entry[1])[:NUM_WORST]
    drawn = {path: _object_sample(truth, boxes.cocoDt, segments, samples[path]) for path, *_ in worst}
    return Evaluation(score, table, confusion, images, sides, precision["bbox"][0].T, drawn)


def match_image(
    annotated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], list[tuple[int | None, int | None]]]:
    """Match the objects and detections of an image. What is found in a crowd is neither right nor wrong.

    Args:
        annotated: entries of COCO, with ``bbox`` (xywh), ``category_id`` and ``iscrowd``.
        found: the same of detections.

    Returns:
        The objects that count, the detections that count, and their pairs; see :func:`match`.
    """
    from pycocotools.mask import iou

    objects = [entry for entry in annotated if not entry.get("iscrowd")]
    crowds = [entry["bbox"] for entry in annotated if entry.get("iscrowd")]
    if crowds and found:
        inside = iou([entry["bbox"] for entry in found], crowds, [1] * len(crowds)).max(1)
        matched = {j for i, j in match(objects, found) if i is not None}
        found = [entry for j, entry in enumerate(found) if j in matched or inside[j] < IOU]
    return objects, list(found), match(objects, found)


def match(
    objects: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> list[tuple[int | None, int | None]]:
    """Pairs of objects and detections that overlap by :data:`IOU` or more, whatever their classes; the rest with None.

    Of all pairs, those of the same class come first, and of these the ones that overlap most.
    """
    from pycocotools.mask import iou

    pairs: list[tuple[int | None, int | None]] = []
    if objects and found:
        overlaps = iou([e["bbox"] for e in found], [e["bbox"] for e in objects], [0] * len(objects)).T
        same = np.array([[a["category_id"] == b["category_id"] for b in found] for a in objects])
        order = np.argsort(-(overlaps + same), axis=None)
        for i, j in zip(*np.unravel_index(order, overlaps.shape), strict=True):
            if overlaps[i, j] >= IOU and all(i != a and j != b for a, b in pairs):
                pairs.append((int(i), int(j)))
    taken, used = {i for i, _ in pairs}, {j for _, j in pairs}
    pairs += [(i, None) for i in range(len(objects)) if i not in taken]
    return pairs + [(None, j) for j in range(len(found)) if j not in used]


def _object_sample(truth: Any, boxes: Any, segments: Any, image_id: int) -> BaseDataElement:
    """Annotations and detections of one image, as :func:`draw_prediction` takes them."""

    def instances(coco: Any, masks: Any) -> InstanceData:
        entries = coco.imgToAnns.get(image_id, []) if coco.anns else []
        data = InstanceData()
        x, y, w, h = np.array([e["bbox"] for e in entries], float).reshape(-1, 4).T
        data.bboxes = np.stack([x, y, x + w, y + h], 1)
        data.labels = np.array([e["category_id"] - 1 for e in entries], int)
        if entries and "score" in entries[0]:
            data.scores = np.array([e["score"] for e in entries])
        if masks is not None and entries:
            data.masks = np.stack([masks.annToMask(e) for e in masks.imgToAnns[image_id]])
        return data

    truth_masks = truth if segments is not None else None
    return BaseDataElement(gt_instances=instances(truth, truth_masks), pred_instances=instances(boxes, segments))


def _evaluate_maps(folder: Path, root: Path, split: str, classes: list[str], label_map: dict[int, int]) -> Evaluation:
    from PIL import Image

    number = len(classes)
    confusion, images, samples = np.zeros((number, number), int), [], {}
    for line in (folder / "data" / f"{split}.txt").read_text(encoding="utf-8").splitlines():
        path, seg_map = line.split("\t")
        with Image.open(root / seg_map) as picture:
            truth = np.array(picture, int)
        for value, label in label_map.items():
            truth[truth == value] = label
        with Image.open(folder / "test" / "predictions" / f"{Path(path).stem}.png") as picture:
            found = np.array(picture, int)
        known = truth < number
        counts = np.bincount(truth[known] * number + found[known], minlength=number**2).reshape(number, number)
        confusion += counts
        mean = _mean(_ious(counts))
        images.append((path, 1 - mean, f"mIoU {100 * mean:.1f}"))
        samples[path] = BaseDataElement(
            gt_sem_seg=PixelData(data=truth[None]), pred_sem_seg=PixelData(data=found[None])
        )
        if len(samples) > NUM_WORST:
            best = min(images, key=lambda image: image[1] if image[0] in samples else np.inf)
            del samples[best[0]]
    ious = _ious(confusion)
    shares = confusion.sum(1) / max(1, confusion.sum())
    table = [["class", "share of pixels", "IoU"]]
    table += [
        [name, f"{share:.1%}", f"{100 * iou:.1f}"] for name, share, iou in zip(classes, shares, ious, strict=True)
    ]
    score = f"mIoU {100 * _mean(ious):.1f}, {np.trace(confusion) / max(1, confusion.sum()):.1%} of the pixels are right"
    return Evaluation(score, table, confusion, images, samples=samples)


def _ious(confusion: np.ndarray) -> np.ndarray:
    """Intersection over union of each class; NaN of classes that are neither annotated nor predicted."""
    right = np.diag(confusion)
    union = confusion.sum(0) + confusion.sum(1) - right
    return np.where(union > 0, right / np.maximum(union, 1), np.nan)


def _evaluate_labels(folder: Path, root: Path, split: str, classes: list[str], label_map: dict[int, int]) -> Evaluation:
    from mmengine.fileio import load

    entries = load(folder / "test" / "predictions.pkl")  # written by the test a moment ago
    truth = np.array([int(entry["gt_label"]) for entry in entries])
    scores = np.stack([np.asarray(entry["pred_score"], float) for entry in entries])
    found = scores.argmax(1)
    confusion = np.zeros((len(classes),) * 2, int)
    np.add.at(confusion, (truth, found), 1)
    table = [["class", "images", "recognised", "AP"]]
    precision = np.stack([_precision_at(scores[:, index], truth == index) for index in range(len(classes))])
    for index, name in enumerate(classes):
        count = confusion[index].sum()
        table.append(
            [name, str(count), f"{confusion[index, index] / max(1, count):.1%}", f"{_mean(precision[index]):.3f}"]
        )
    images, samples = [], {}
    for entry, label, guess, score in zip(entries, truth, found, scores, strict=True):
        path = Path(entry["img_path"]).relative_to(root).as_posix()
        error = float(score[guess] - score[label]) if guess != label else float(score[label] - 2)
        images.append(
            (path, error, f"{classes[label]}, taken for {classes[guess]}" if guess != label else "recognised")
        )
        samples[path] = BaseDataElement(gt_label=np.array([label]), pred_label=np.array([guess]), pred_score=score)
    score = f"top-1 {np.mean(truth == found):.1%} of {len(truth)} images"
    return Evaluation(score, table, confusion, images, precision=precision, samples=samples)


def _precision_at(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """The best precision at each of 101 values of recall or above it, as COCO interpolates."""
    if not positive.any():
        return np.full(101, np.nan)
    right = positive[np.argsort(-scores, kind="stable")].cumsum()
    precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
    return precision[np.searchsorted(right / right[-1], np.linspace(0, 1, 101) - 1e-9)]


def _mean(values: np.ndarray) -> float:
    """The mean of the values that are numbers; 0 if there are none."""
    values = np.asarray(values)[~np.isnan(values)]
    return float(values.mean()) if values.size else 0.0


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
        axes.plot(recall, [_mean(values) for values in precision.T], label="mean", linewidth=2.5, color="black")
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
        axes.legend(frameon=False)


# --- pages -------------------------------------------------------------------------------------------------------------------


def _as_html(title: str, score: str, sections: Sequence[Section], folder: Path) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="score">{html.escape(score)}</p>']
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        if section.text:
            parts.append(f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in section.text)}</ul>")
        if section.table:
            head, *rows = section.table
            parts.append(f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>")
        parts.append(f'<div class="{"grid" if len(section.pictures) > 3 else ""}">')
        for path, caption in section.pictures:
            source = f"data:image/{path.suffix[1:]};base64,{base64.b64encode(path.read_bytes()).decode()}"
            caption = html.escape(caption)
            parts.append(f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>')
        parts.append("</div>")
        if section.code:
            parts.append(f"<pre>{html.escape(chr(10).join(section.code))}</pre>")
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'


def _as_markdown(title: str, score: str, sections: Sequence[Section], folder: Path) -> str:
    parts = [f"# {title}", f"**{score}**"]
    for section in sections:
        parts.append(f"## {section.title}")
        if section.text:
            parts.append("\n".join(f"- {line}" for line in section.text))
        if section.table:
            lines = [section.table[0], ["---"] * len(section.table[0]), *section.table[1:]]
            parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
        for path, caption in section.pictures:
            parts.append(f"![{caption}](<{path.relative_to(folder).as_posix()}>)\n\n*{caption}*")
        if section.code:
            parts.append("\n".join(["```bash", *section.code, "```"]))
    return "\n\n".join(parts) + "\n"
