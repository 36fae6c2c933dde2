"""The report of a training: predictions of the test are evaluated, and results and the largest errors shown on a page."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from mmengine.config import Config
from mmengine.fileio import load
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.mask import decode, iou

from mmlisa import __version__
from mmlisa.checkpoints import write_file
from mmlisa.classes import Classes
from mmlisa.training.config import build_model
from mmlisa.visualization.curves import draw_curves, read_curves
from mmlisa.visualization.overlays import draw_prediction

_IOU = 0.5  # a detection finds an object that it overlaps by more than this
_CROP = 300  # pixels of a side around an error
_PICTURES, _PER_IMAGE = 12, 3  # pictures of errors, and most of one image
_SIDE = 400  # pixels of each of two pictures beside each other


@dataclass
class Evaluation:
    """Results of a test, per class and per image. A window is left, top, width and height in pixels."""

    score: str  # the main result, as a sentence
    table: list[list[str]]  # results per class, the head first; '-' where nothing is counted
    confusion: np.ndarray  # [annotated, predicted]; of detection, the last row and column are the background
    unit: str  # what the matrix counts
    images: list[tuple[str, float, str, list[Sequence[int]]]]  # path, error, a caption, and windows around the errors
    sample: Callable[[str, Sequence[int]], BaseDataElement]  # path, window -> annotations and predictions there
    threshold: float = 0.0  # the score from which on a detection counts: that of the highest F1


def write_report(folder: Path, commands: Mapping[str, str]) -> str:
    """Write ``report.html``, with its pictures inside, from the results of a test, and return the main result, a sentence.

    ``folder`` is that of a run; ``commands`` are what to do next, by its description.
    """
    facts = json.loads((folder / "data" / "data.json").read_text())
    cfg = Config.fromfile(folder / "config.py")
    settings = cfg.to_dict()
    task, classes, root = facts["task"], list(settings["classes"]), Path(settings["data_root"])
    split, chosen = ("test", "") if facts["test"] else ("val", "; the checkpoint was chosen on them")
    unit_of_step = "tiles of" if (folder / "plain.py").exists() else "images, longer side"
    length = f"at most {settings['steps']} steps of {settings['batch']} {unit_of_step} {settings['side']} pixels"
    parameters = sum(parameter.numel() for parameter in build_model(cfg).parameters())
    curves, comparison = BytesIO(), folder / "comparison.json"
    draw_curves(read_curves(folder / "train"), curves)
    evaluate = {"detection": evaluate_objects, "segmentation": evaluate_maps, "classification": evaluate_labels}[task]
    result = evaluate(folder, root, split, classes)
    option = f" --score-thr {result.threshold:.2f}" if result.threshold else ""
    commands = {purpose: line + option * (" infer " in line) for purpose, line in commands.items()}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["base64"] = lambda content: b64encode(content).decode()
    text = environment.get_template("report.html.jinja").render(
        title=f"{folder.name}: {task}",
        result=result,
        comparison=json.loads(comparison.read_text()) if comparison.exists() else None,
        exported=json.loads((folder / "export.json").read_text()),
        names=[*classes, "nothing"][: len(result.confusion)],
        summary=[
            f"tested on {split}, number of images: {len(facts[split])}{chosen}",
            f"{_model_name(settings['model'])} with {parameters / 1e6:.2f} million parameters",
            f"{length}; trained for {duration(folder)}",
            f"mmlisa {__version__}, {date.today()}",
        ],
        facts=facts,
        curves=curves.getvalue(),
        worst=draw_errors(result, root, classes),
        beside=task != "classification",
        commands=commands,
        exported_line=commands.get("the same with the exported file"),
    )
    write_file(folder / "report.html", text)
    return result.score


def _model_name(model: Mapping[str, Any]) -> str:
    """Return the detector, segmentor or classifier of a config and its backbone, in a few words."""
    model = model.get("detector", model)
    arch = model["backbone"].get("arch", "")
    return f"{model['type']} on {model['backbone']['type']}{f' ({arch})' if isinstance(arch, str) and arch else ''}"


def duration(folder: Path) -> str:
    """Return the time of a training, from the times of its logs: a folder's name is the start, its last change the end."""
    logs = folder.glob("train/*/vis_data/scalars.json")
    starts = ((log, datetime.strptime(log.parts[-3], "%Y%m%d_%H%M%S").timestamp()) for log in logs)
    return str(timedelta(seconds=round(sum(max(0, log.stat().st_mtime - start) for log, start in starts))))


def draw_errors(result: Evaluation, root: Path, classes: list[str]) -> list[tuple[bytes, str]]:
    """Return JPEG pictures of the largest errors, annotation beside prediction, and a caption of each."""
    drawn, names = [], Classes({"classes": classes})
    wrong = [image for image in result.images if image[1] > 0]
    for path, _, caption, windows in sorted(wrong, key=lambda image: -image[1])[:_PICTURES]:
        picture, shown = mmcv.imread(root / path, channel_order="rgb"), []
        for window in windows:
            x, y, w, h = window or (0, 0, *picture.shape[1::-1])
            if len(shown) == _PER_IMAGE or any(abs(x - left) < w / 2 and abs(y - top) < h / 2 for left, top in shown):
                continue
            shown.append((x, y))
            cut, sample = picture[y : y + h, x : x + w], result.sample(path, window)
            drawing = draw_prediction(cut, sample, names, score_threshold=0, side=_SIDE)
            _, content = cv2.imencode(".jpg", drawing[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])
            where = f", {w}x{h} pixels at {x}, {y}" if (w, h) != picture.shape[1::-1] else ""
            drawn.append((content.tobytes(), f"{path}{where}: {caption}"))
    return drawn[:_PICTURES]


def evaluate_objects(folder: Path, root: Path, split: str, classes: list[str]) -> Evaluation:
    """Evaluate boxes and masks, ``test/predictions.{bbox,segm}.json``, against ``data/<split>.json`` in ``folder``."""
    from mmlisa.datasets.coco_metric import (  # only detection needs mmdet
        evaluate,
        find_best_score,
        format_score,
        load_results,
        measure,
        tabulate_classes,
    )

    entries, kinds = json.loads((folder / "test" / "predictions.bbox.json").read_text()), {"box": "bbox"}
    if (masks := folder / "test" / "predictions.segm.json").is_file():
        kinds["mask"] = "segm"
        for entry, mask in zip(entries, json.loads(masks.read_text()), strict=True):
            entry["segmentation"] = mask["segmentation"]
    with redirect_stdout(StringIO()):  # pycocotools prints tables
        truth = COCO(str(folder / "data" / f"{split}.json"))
        results = load_results(truth, entries)
        evaluations = {name: evaluate(truth, results, kind) for name, kind in kinds.items()}
    threshold, f1 = find_best_score(evaluations["box"])
    table = tabulate_classes(evaluations, {name: label for label, name in enumerate(classes, 1)})
    aps = [(kind, measure(each, "mAP"), measure(each, "mAP_50")) for kind, each in evaluations.items()]
    score = "; ".join(f"{kind} AP {ap:.3f}, AP50 {ap50:.3f}" for kind, ap, ap50 in aps)
    confusion, images, by_path = np.zeros((len(classes) + 1, len(classes) + 1), int), [], {}
    for image in truth.imgs.values():
        annotated = truth.imgToAnns.get(image["id"], [])
        detections = [entry for entry in results.imgToAnns.get(image["id"], []) if entry["score"] >= threshold]
        pairs = pair_objects(annotated, detections)
        for pair in pairs:
            confusion[tuple(each["category_id"] - 1 if each else -1 for each in pair)] += 1
        wrong = [a or b for a, b in pairs if not (a and b and a["category_id"] == b["category_id"])]
        missed, added = (sum(pair[side] is None for pair in pairs) for side in (1, 0))
        caption = f"{missed} missed, {added} found where nothing is, {len(wrong) - missed - added} of another class"
        boxes, size = (entry["bbox"] for entry in wrong), (image["width"], image["height"])
        windows = [_window([x + w / 2, y + h / 2], max(_CROP, w, h), size) for x, y, w, h in boxes]
        images.append((image["file_name"], float(len(wrong)), caption, windows))
        by_path[image["file_name"]] = annotated, detections

    def sample(path: str, window: Sequence[int]) -> BaseDataElement:
        pairs = zip((truth, results), by_path[path], strict=True)
        annotated, predicted = (_instances(coco, entries, window, "mask" in kinds) for coco, entries in pairs)
        return BaseDataElement(gt_instances=annotated, pred_instances=predicted)

    start = format_score(threshold)
    unit = f"Objects; detections from a score of {start} on, where the F1 of all is highest, {f1:.2f}"
    return Evaluation(score, table, confusion, unit, images, sample, float(start))


def pair_objects(annotated: Sequence[Mapping], detections: Sequence[Mapping]) -> list[tuple[Any, Any]]:
    """Pair the objects and detections of an image, COCO's entries, by their boxes: of one class first, then the nearest.

    Returns:
        Objects and their detections; None for the missing one. Crowds, and unpaired detections in them, are left out.
    """
    objects, crowds = ([entry for entry in annotated if entry["iscrowd"] == flag] for flag in (0, 1))
    boxes, targets = ([entry["bbox"] for entry in entries] for entries in (detections, objects + crowds))
    ious = iou(boxes, targets, [0] * len(objects) + [1] * len(crowds)) if boxes and targets else []
    overlaps, inside = np.split(np.reshape(ious, (len(detections), len(targets))), [len(objects)], 1)
    same = np.equal.outer(*([entry["category_id"] for entry in entries] for entries in (detections, objects)))
    rank, pairs = np.where(overlaps > _IOU, overlaps + same, 0), []
    while rank.any():
        row, column = np.unravel_index(rank.argmax(), rank.shape)
        pairs.append((objects[column], detections[row]))
        rank[row], rank[:, column] = 0, 0
    paired = {id(entry) for pair in pairs for entry in pair}
    pairs += [(entry, None) for entry in objects if id(entry) not in paired]
    outside = inside.max(1, initial=0) < _IOU
    return pairs + [(None, e) for e, counts in zip(detections, outside, strict=True) if counts and id(e) not in paired]


def _window(centre: Sequence[float], side: float, size: Sequence[int]) -> list[int]:
    """Return a square around a centre (x, y), moved into an image of ``size`` (width, height)."""
    sides = [min(round(side), length) for length in size]
    corner = [int(np.clip(c - s / 2, 0, length - s)) for c, s, length in zip(centre, sides, size, strict=True)]
    return [*corner, *sides]


def _instances(coco: COCO, entries: Sequence[Mapping], window: Sequence[int], with_masks: bool) -> InstanceData:
    """Return the part of annotations or detections that lies in a window."""
    left, top, width, height = window
    x, y, w, h = np.array([entry["bbox"] for entry in entries], float).reshape(-1, 4).T
    boxes = np.stack([x, y, x + w, y + h], 1) - [left, top, left, top]
    labels = np.array([entry["category_id"] - 1 for entry in entries], int)
    inside = (boxes[:, 2:] > 0).all(1) & (boxes[:, :2] < [width, height]).all(1)
    inner = [entry for entry, is_inside in zip(entries, inside, strict=True) if is_inside]
    data = InstanceData(bboxes=boxes[inside].clip(0, [width, height] * 2), labels=labels[inside])
    if inner and "score" in inner[0]:
        data.scores = np.array([entry["score"] for entry in inner])
    if inner and with_masks:  # one after another, because all masks of a large image take gigabytes
        data.masks = np.stack([decode(coco.annToRLE(each))[top : top + height, left : left + width] for each in inner])
    return data


def evaluate_maps(folder: Path, root: Path, split: str, classes: list[str]) -> Evaluation:
    """Evaluate the class maps in ``folder/test/predictions`` against those under ``root`` that ``data/<split>.txt`` lists."""
    number = len(classes)
    confusion, images = np.zeros((number, number), int), []
    lines = (folder / "data" / f"{split}.txt").read_text(encoding="utf-8").splitlines()
    seg_maps = dict(line.split("\t") for line in lines)

    def read(path: str) -> list[np.ndarray]:
        paths = root / seg_maps[path], folder / "test" / "predictions" / f"{path.lstrip('/')}.png"
        return [np.array(Image.open(each), int) for each in paths]

    def sample(path: str, window: Sequence[int]) -> BaseDataElement:
        x, y, w, h = window
        truth, predicted = (PixelData(data=each[None, y : y + h, x : x + w]) for each in read(path))
        return BaseDataElement(gt_sem_seg=truth, pred_sem_seg=predicted)

    for path in seg_maps:
        truth, predicted = read(path)
        counts = count_labels(truth, predicted, number)
        confusion += counts
        wrong = cv2.blur(np.float32((truth != predicted) & (truth < number)), (_CROP, _CROP))
        y, x = np.unravel_index(wrong.argmax(), wrong.shape)
        ious = _ious(counts)
        error = 1 - np.nanmean(ious) if (ious >= 0).any() else 0.0
        window = _window((x, y), _CROP, truth.shape[::-1])
        images.append((path, error, f"mIoU {mean(100 * ious, '.1f')}", [window]))
    ious, shares = 100 * _ious(confusion), confusion.sum(1) / max(1, confusion.sum())
    table = [["class", "share of pixels", "IoU"]]
    for name, share, value in zip(classes, shares, ious, strict=True):
        table.append([name, f"{share:.1%}", mean(value, ".1f")])
    score = f"mIoU {mean(ious, '.1f')}, {np.trace(confusion) / max(1, confusion.sum()):.1%} of the pixels are right"
    return Evaluation(score, table, confusion, "Pixels", images, sample)


def count_labels(annotated: np.ndarray, predicted: np.ndarray, number: int) -> np.ndarray:
    """Count the pairs of labels, [annotated, predicted]; annotated labels from ``number`` on, such as 255, do not count."""
    counted = annotated < number
    pairs = annotated[counted].astype(int) * number + predicted[counted]
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
    predicted = scores.argmax(1)
    confusion = count_labels(truth, predicted, len(classes))
    table = [["class", "images", "recall", "precision"]]
    for name, right, row, column in zip(classes, np.diag(confusion), confusion, confusion.T, strict=True):
        shares = (f"{right / counts.sum():.1%}" if counts.any() else "-" for counts in (row, column))
        table.append([name, str(row.sum()), *shares])
    images, samples = [], {}
    for entry, label, guess, score in zip(entries, truth, predicted, scores, strict=True):
        path = entry["img_path"].removeprefix(f"{root}/")
        caption = "recognised" if guess == label else f"{classes[label]}, taken for {classes[guess]}"
        images.append((path, float(score[guess] - score[label]), caption, [()]))
        samples[path] = BaseDataElement(gt_label=np.array([label]), pred_label=np.array([guess]), pred_score=score)
    score = f"top-1 {np.mean(truth == predicted):.1%} of {len(truth)} images"
    return Evaluation(score, table, confusion, "Images", images, lambda path, _: samples[path])


def mean(values: np.ndarray, form: str) -> str:
    """Return the mean of the values that are numbers as text, ``-`` if there are none."""
    values = np.asarray(values)[~np.isnan(values)]
    return format(values.mean(), form) if values.size else "-"
