"""Evaluation of a test's predictions: results per class, confusion matrix, and the error on each image."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import supervision as sv
from mmengine.fileio import load
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.mask import iou

SCORE, IOU = 0.3, 0.5  # a detection counts from this score on, and finds an object that it overlaps by more than this


@dataclass
class Evaluation:
    """Results of a test, per class and per image.

    Attributes:
        score: the main result, as a sentence.
        table: results per class, the head first.
        confusion: [annotated, predicted], counts of objects, pixels or images; of detection, the last row and column are the
            background.
        images: path, error (the larger, the worse) and a caption, of each image.
        sample: an image's path -> its annotations and predictions, as :func:`draw_prediction` takes them. Masks are run lengths,
            because the decoded ones of a large image take gigabytes.
    """

    score: str
    table: list[list[str]]
    confusion: np.ndarray
    images: list[tuple[str, float, str]]
    sample: Callable[[str], BaseDataElement]


def evaluate_objects(folder: Path, root: Path, split: str, classes: list[str]) -> Evaluation:
    """Evaluate boxes and masks, ``test/predictions.{bbox,segm}.json``, against ``data/<split>.json`` in ``folder``."""
    from mmlisa.datasets.coco import measure_precision  # only detection needs mmdet

    entries, kinds = json.loads((folder / "test" / "predictions.bbox.json").read_text()), {"bbox": "box"}
    if (masks := folder / "test" / "predictions.segm.json").is_file():
        kinds["segm"] = "mask"
        for entry, mask in zip(entries, json.loads(masks.read_text()), strict=True):
            entry["segmentation"] = mask["segmentation"]
    precision = {}
    with redirect_stdout(StringIO()):  # pycocotools prints tables
        truth = COCO(str(folder / "data" / f"{split}.json"))
        found = truth.loadRes(entries) if entries else COCO()
        for kind, shown in kinds.items():
            precision[shown] = measure_precision(truth, found, kind)[..., 0]
    labels = [entry["category_id"] - 1 for entry in truth.anns.values() if not entry.get("iscrowd")]
    numbers = np.bincount(np.array(labels, int), minlength=len(classes))
    table = [["class", "objects", *(f"{shown} {name}" for shown in precision for name in ("AP", "AP50"))]]
    for index, (name, number) in enumerate(zip(classes, numbers, strict=True)):
        values = [each[..., index] for values in precision.values() for each in (values, values[:1])]
        table.append([name, str(number), *(f"{mean(each):.3f}" for each in values)])
    score = "; ".join(f"{shown} AP {mean(each):.3f}, AP50 {mean(each[0]):.3f}" for shown, each in precision.items())
    confusion, images, ids = np.zeros((len(classes) + 1, len(classes) + 1), int), [], {}
    for image_id, image in truth.imgs.items():
        annotated = truth.imgToAnns.get(image_id, [])
        counts = count_objects(annotated, _shown(found, image_id), len(classes))
        confusion += counts
        missed, added, wrong = counts[:, -1].sum(), counts[-1].sum(), counts.sum() - np.trace(counts)
        caption = f"{missed} missed, {added} found where nothing is, {wrong - missed - added} of another class"
        images.append((image["file_name"], float(wrong), caption))
        ids[image["file_name"]] = image_id

    def sample(path: str) -> BaseDataElement:
        annotated, predicted = (_instances(coco, ids[path], "segm" in kinds) for coco in (truth, found))
        return BaseDataElement(gt_instances=annotated, pred_instances=predicted)

    return Evaluation(score, table, confusion, images, sample)


def count_objects(
    annotated: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], number: int
) -> np.ndarray:
    """Count the pairs of objects and detections of an image by their classes.

    supervision pairs boxes of the same class first, and then those that overlap most. Detections inside of crowds do not count,
    unless they overlap an object.

    Args:
        annotated: COCO annotations, with ``bbox`` (xywh), ``category_id`` from 1 on, and ``iscrowd``.
        found: COCO results, with ``bbox``, ``category_id`` and ``score``.
        number: the number of classes.

    Returns:
        Counts ``[number + 1, number + 1]``, [annotated, predicted]; the last row and column are the background.
    """
    crowd = np.array([entry.get("iscrowd", 0) for entry in annotated], bool)
    if crowd.any() and found:
        boxes = [[entry["bbox"] for entry in entries] for entries in (found, annotated)]
        overlaps = iou(*boxes, crowd.tolist())  # [found, annotated]; of crowds, the share of the detection
        counted = (overlaps[:, crowd].max(1) < IOU) | (overlaps[:, ~crowd].max(1, initial=0) > IOU)
        found = [entry for entry, counts in zip(found, counted, strict=True) if counts]
    objects = [entry for entry in annotated if not entry.get("iscrowd")]
    rows = [np.column_stack(_boxes(entries)) for entries in (found, objects)]
    scores = [[entry["score"]] for entry in found]
    predictions = np.hstack([rows[0], np.reshape(scores, (-1, 1))])
    return sv.ConfusionMatrix.evaluate_detection_batch(predictions, rows[1], number, SCORE, IOU).astype(int)


def _shown(coco: COCO, image_id: int) -> list[dict[str, Any]]:
    """Return the annotations of an image, or its detections from :data:`SCORE` on."""
    return [entry for entry in coco.imgToAnns.get(image_id, []) if entry.get("score", 1.0) >= SCORE]


def _boxes(entries: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes ``[N, 4]``, as left, top, right and bottom, and the labels ``[N]``."""
    x, y, w, h = np.array([entry["bbox"] for entry in entries], float).reshape(-1, 4).T
    return np.stack([x, y, x + w, y + h], 1), np.array([entry["category_id"] - 1 for entry in entries], int)


def _instances(coco: COCO, image_id: int, with_masks: bool) -> InstanceData:
    """Return what :func:`_shown` does as instances."""
    entries, data = _shown(coco, image_id), InstanceData()
    data.bboxes, data.labels = _boxes(entries)
    if entries and "score" in entries[0]:
        data.scores = np.array([entry["score"] for entry in entries])
    if entries and with_masks:
        data.masks = [coco.annToRLE(entry) for entry in entries]
    return data


def evaluate_maps(folder: Path, root: Path, split: str, classes: list[str]) -> Evaluation:
    """Evaluate the class maps in ``folder/test/predictions`` against those under ``root`` that ``data/<split>.txt`` lists."""
    number = len(classes)
    confusion, images = np.zeros((number, number), int), []
    lines = (folder / "data" / f"{split}.txt").read_text(encoding="utf-8").splitlines()
    seg_maps = dict(line.split("\t") for line in lines)

    def sample(path: str) -> BaseDataElement:
        with Image.open(root / seg_maps[path]) as picture:
            truth = np.array(picture, int)
        with Image.open(folder / "test" / "predictions" / f"{path.lstrip('/')}.png") as picture:
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
    rows = zip(classes, shares, ious, strict=True)
    table = [["class", "share of pixels", "IoU"], *([name, f"{x:.1%}", f"{100 * iou:.1f}"] for name, x, iou in rows)]
    score = f"mIoU {100 * mean(ious):.1f}, {np.trace(confusion) / max(1, confusion.sum()):.1%} of the pixels are right"
    return Evaluation(score, table, confusion, images, sample)


def count_labels(annotated: np.ndarray, predicted: np.ndarray, number: int) -> np.ndarray:
    """Count the pairs of labels, [annotated, predicted]; annotated labels from ``number`` on, such as 255, do not count."""
    known = annotated < number
    pairs = annotated[known].astype(int) * number + predicted[known]
    return np.bincount(pairs, minlength=number**2).reshape(number, number)


def _ious(confusion: np.ndarray) -> np.ndarray:
    """Return the intersection over union of each class; NaN of classes that are neither annotated nor predicted."""
    right = np.diag(confusion)
    union = confusion.sum(0) + confusion.sum(1) - right
    return np.where(union > 0, right / np.maximum(union, 1), np.nan)


def evaluate_labels(folder: Path, root: Path, split: str, classes: list[str]) -> Evaluation:
    """Evaluate the class scores in ``folder/test/predictions.pkl``; ``root`` is the folder of the images."""
    entries = load(folder / "test" / "predictions.pkl")  # written by the test a moment ago
    truth = np.array([int(entry["gt_label"]) for entry in entries])
    scores = np.stack([np.asarray(entry["pred_score"], float) for entry in entries])
    found = scores.argmax(1)
    confusion = count_labels(truth, found, len(classes))
    table = [["class", "images", "recall", "precision"]]
    for name, right, row, column in zip(classes, np.diag(confusion), confusion, confusion.T, strict=True):
        shares = (f"{right / max(1, counts.sum()):.1%}" for counts in (row, column))
        table.append([name, str(row.sum()), *shares])
    images, samples = [], {}
    for entry, label, guess, score in zip(entries, truth, found, scores, strict=True):
        path = entry["img_path"].removeprefix(f"{root}/")
        error = float(score[guess] - score[label]) if guess != label else float(score[label] - 2)
        caption = "recognised" if guess == label else f"{classes[label]}, taken for {classes[guess]}"
        images.append((path, error, caption))
        samples[path] = BaseDataElement(gt_label=np.array([label]), pred_label=np.array([guess]), pred_score=score)
    score = f"top-1 {np.mean(truth == found):.1%} of {len(truth)} images"
    return Evaluation(score, table, confusion, images, samples.__getitem__)


def mean(values: np.ndarray) -> float:
    """Return the mean of the values that are numbers; 0 if there are none."""
    values = np.asarray(values)[~np.isnan(values)]
    return float(values.mean()) if values.size else 0.0
