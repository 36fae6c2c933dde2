"""Evaluation of a test's predictions: results per class, confusion matrix, and the error on each image."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.structures import BaseDataElement, InstanceData, PixelData

SCORE, IOU = 0.3, 0.5  # a detection counts from this score on, and finds an object that it overlaps by this much
NUM_WORST = 12


@dataclass
class Evaluation:
    """What a test says, per class and per image.

    Attributes:
        score: the main result, as a sentence.
        table: results per class, the head first.
        confusion: [annotated, predicted], counts of objects, pixels or images; of detection, the last row and column are the
            background.
        images: path, error (the larger, the worse) and a caption, of each image.
        sample: an image's path -> its annotations and predictions, as :func:`draw_prediction` takes them. The masks of a large
            image take gigabytes, so they are decoded with each call.
        sides: of detection, the square roots of the areas of found and of missed objects.
        precision: of each class, precision at 101 values of recall from 0 to 1; NaN where there are no objects.
    """

    score: str
    table: list[list[str]]
    confusion: np.ndarray
    images: list[tuple[str, float, str]]
    sample: Callable[[str], BaseDataElement]
    sides: tuple[list[float], list[float]] | None = None
    precision: np.ndarray | None = None


def find_worst(images: Sequence[tuple[str, float, str]]) -> list[tuple[str, float, str]]:
    """The :data:`NUM_WORST` images with the largest errors, the largest first; of equal errors, the first in ``images``."""
    return sorted(images, key=lambda image: -image[1])[:NUM_WORST]


def evaluate_objects(folder: Path, root: Path, split: str, classes: list[str], label_map: dict[int, int]) -> Evaluation:
    """Evaluate boxes and masks, ``test/predictions.{bbox,segm}.json``, against ``data/<split>.json`` in ``folder``."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    kinds = [kind for kind in ("bbox", "segm") if (folder / "test" / f"predictions.{kind}.json").is_file()]
    if "bbox" not in kinds:
        raise FileNotFoundError(f"folder '{folder / 'test'}' has no predictions.bbox.json; run the test first")
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
    labels = [entry["category_id"] - 1 for entry in truth.anns.values() if not entry.get("iscrowd")]
    counts = np.bincount(np.array(labels, int), minlength=len(classes))
    shown = {"bbox": "box", "segm": "mask"}
    table = [["class", "objects", *(f"{shown[kind]} {name}" for kind in kinds for name in ("AP", "AP50"))]]
    for index, name in enumerate(classes):
        values = [p[..., index] for kind in kinds for p in (precision[kind], precision[kind][:1])]
        table.append([name, str(counts[index]), *(f"{mean(value):.3f}" for value in values)])
    score = "; ".join(
        f"{shown[kind]} AP {mean(precision[kind]):.3f}, AP50 {mean(precision[kind][0]):.3f}" for kind in kinds
    )
    confusion = np.zeros((len(classes) + 1, len(classes) + 1), int)
    images, sides, ids = [], ([], []), {}
    for image_id, image in truth.imgs.items():
        found = (
            [e for e in boxes.cocoDt.imgToAnns.get(image_id, []) if e["score"] >= SCORE] if boxes.cocoDt.anns else []
        )
        objects, pairs = match_image(truth.imgToAnns[image_id], found)
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
        ids[image["file_name"]] = image_id
    segments = by_kind["segm"].cocoDt if "segm" in by_kind else None

    def sample(path: str) -> BaseDataElement:
        return _object_sample(truth, boxes.cocoDt, segments, ids[path])

    return Evaluation(score, table, confusion, images, sample, sides, precision["bbox"][0].T)


def match_image(
    annotated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[tuple[int | None, int | None]]]:
    """Match the objects and detections of an image. Detections inside of crowds are neither right nor wrong.

    Args:
        annotated: entries of COCO, with ``bbox`` (xywh), ``category_id`` and ``iscrowd``.
        found: the same of detections.

    Returns:
        The objects that count, and the pairs of them and of the detections that count; see :func:`match`.
    """
    from pycocotools.mask import iou

    objects = [entry for entry in annotated if not entry.get("iscrowd")]
    crowds = [entry["bbox"] for entry in annotated if entry.get("iscrowd")]
    pairs = match(objects, found)
    if crowds and found:
        inside = iou([entry["bbox"] for entry in found], crowds, [1] * len(crowds)).max(1)
        pairs = [(i, j) for i, j in pairs if i is not None or inside[j] < IOU]
    return objects, pairs


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
    """Annotations of one image, and its detections from :data:`SCORE` on."""

    def instances(coco: Any, masks: Any) -> InstanceData:
        entries = coco.imgToAnns.get(image_id, []) if coco.anns else []
        shown = [i for i, entry in enumerate(entries) if entry.get("score", 1.0) >= SCORE]
        entries = [entries[i] for i in shown]
        data = InstanceData()
        x, y, w, h = np.array([e["bbox"] for e in entries], float).reshape(-1, 4).T
        data.bboxes = np.stack([x, y, x + w, y + h], 1)
        data.labels = np.array([e["category_id"] - 1 for e in entries], int)
        if entries and "score" in entries[0]:
            data.scores = np.array([e["score"] for e in entries])
        if masks is not None and entries:
            data.masks = np.stack([masks.annToMask(masks.imgToAnns[image_id][i]) for i in shown])
        return data

    truth_masks = truth if segments is not None else None
    return BaseDataElement(gt_instances=instances(truth, truth_masks), pred_instances=instances(boxes, segments))


def evaluate_maps(folder: Path, root: Path, split: str, classes: list[str], label_map: dict[int, int]) -> Evaluation:
    """Evaluate the class maps in ``folder/test/predictions`` against those under ``root`` that ``data/<split>.txt`` lists."""
    from PIL import Image

    number = len(classes)
    confusion, images = np.zeros((number, number), int), []
    lines = (folder / "data" / f"{split}.txt").read_text(encoding="utf-8").splitlines()
    seg_maps = dict(line.split("\t") for line in lines)

    def sample(path: str) -> BaseDataElement:
        with Image.open(root / seg_maps[path]) as picture:
            truth = np.array(picture, int)
        for value, label in label_map.items():
            truth[truth == value] = label
        with Image.open(folder / "test" / "predictions" / f"{path}.png") as picture:
            found = np.array(picture, int)
        return BaseDataElement(gt_sem_seg=PixelData(data=truth[None]), pred_sem_seg=PixelData(data=found[None]))

    for path in seg_maps:
        maps = sample(path)
        counts = count_labels(maps.gt_sem_seg.data, maps.pred_sem_seg.data, number)
        confusion += counts
        score = mean(_ious(counts))
        images.append((path, 1 - score, f"mIoU {100 * score:.1f}"))
    ious = _ious(confusion)
    shares = confusion.sum(1) / max(1, confusion.sum())
    table = [["class", "share of pixels", "IoU"]]
    table += [
        [name, f"{share:.1%}", f"{100 * iou:.1f}"] for name, share, iou in zip(classes, shares, ious, strict=True)
    ]
    score = f"mIoU {100 * mean(ious):.1f}, {np.trace(confusion) / max(1, confusion.sum()):.1%} of the pixels are right"
    return Evaluation(score, table, confusion, images, sample)


def count_labels(annotated: np.ndarray, predicted: np.ndarray, number: int) -> np.ndarray:
    """Count the pairs of labels, [annotated, predicted]; annotated labels from ``number`` on, such as 255, do not count."""
    known = annotated < number
    pairs = annotated[known].astype(int) * number + predicted[known]
    return np.bincount(pairs, minlength=number**2).reshape(number, number)


def _ious(confusion: np.ndarray) -> np.ndarray:
    """Intersection over union of each class; NaN of classes that are neither annotated nor predicted."""
    right = np.diag(confusion)
    union = confusion.sum(0) + confusion.sum(1) - right
    return np.where(union > 0, right / np.maximum(union, 1), np.nan)


def evaluate_labels(folder: Path, root: Path, split: str, classes: list[str], label_map: dict[int, int]) -> Evaluation:
    """Evaluate the class scores in ``folder/test/predictions.pkl``; ``root`` is the folder of the images."""
    from mmengine.fileio import load

    entries = load(folder / "test" / "predictions.pkl")  # written by the test a moment ago
    truth = np.array([int(entry["gt_label"]) for entry in entries])
    scores = np.stack([np.asarray(entry["pred_score"], float) for entry in entries])
    found = scores.argmax(1)
    confusion = count_labels(truth, found, len(classes))
    table = [["class", "images", "recognised", "AP"]]
    precision = np.stack([_precision_at(scores[:, index], truth == index) for index in range(len(classes))])
    for index, name in enumerate(classes):
        count = confusion[index].sum()
        table.append(
            [name, str(count), f"{confusion[index, index] / max(1, count):.1%}", f"{mean(precision[index]):.3f}"]
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
    return Evaluation(score, table, confusion, images, samples.__getitem__, precision=precision)


def _precision_at(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """The best precision at each of 101 values of recall or above it, as COCO interpolates."""
    if not positive.any():
        return np.full(101, np.nan)
    right = positive[np.argsort(-scores, kind="stable")].cumsum()
    precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
    return precision[np.searchsorted(right / right[-1], np.linspace(0, 1, 101) - 1e-9)]


def mean(values: np.ndarray) -> float:
    """The mean of the values that are numbers; 0 if there are none."""
    values = np.asarray(values)[~np.isnan(values)]
    return float(values.mean()) if values.size else 0.0
