"""COCO's metric of mmdet for any number of objects and any part of a file, and its results per class."""

import math
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from mmdet.datasets.api_wrappers import COCO, COCOevalMP
from mmdet.evaluation import CocoMetric as _CocoMetric
from mmengine.fileio import load
from mmengine.logging import print_log
from pycocotools.coco import COCO as _COCO
from pycocotools.cocoeval import COCOeval
from terminaltables import AsciiTable

from mmlisa.errors import UserError
from mmlisa.registry import METRICS

_KINDS = {"bbox": "box", "segm": "mask"}
_SIZES = {"": 0, "s": 1, "m": 2, "l": 3}
_PRECISIONS = ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l")
_LIMITS = (100, 300, 1000)
_RECALLS = ("AR@100", "AR@300", "AR@1000", "AR_s@1000", "AR_m@1000", "AR_l@1000")


@METRICS.register_module()
class CocoMetric(_CocoMetric):
    """mmdet's CocoMetric with these differences, for boxes and masks; proposals are evaluated by mmdet.

    * All detections count, as :func:`evaluate` describes. pycocotools computes ``bbox_mAP`` from the 100 best detections of each
      class in an image, whatever ``proposal_nums`` says. Here ``proposal_nums`` is for proposals only.
    * The images that the data set gives are evaluated, which may be a part of the file's. mmdet counts the others as missed.
    * With ``classwise``, AP of a class is ``bbox_<class>_precision`` or ``segm_<class>_precision``, and a table has the results
      per class (:func:`tabulate_classes`). mmdet permutes them if the categories' ids do not rise in the order of the file.
    * Without any detection, AP is 0. A value is NaN, and never the best, if there are no objects for it; mmdet has -1.
    * Annotations may have the id 0, which pycocotools counts as never found, and may lack ``iscrowd``.

    Raises:
        UserError: ``metric`` or ``metric_items`` are not supported, or the file's categories do not fit the data set's classes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iou_thrs = np.atleast_1d(self.iou_thrs)
        self.table = self.classwise  # `mmlisa test` always logs the table
        proposals = [name for name in self.metrics if name not in _KINDS]
        if proposals and proposals != self.metrics:
            raise UserError(f"metric={self.metrics}: evaluate proposals in a CocoMetric of their own")
        if "proposal" in proposals and len(self.proposal_nums) != 3:
            raise UserError(f"proposal_nums={self.proposal_nums}: metric 'proposal' needs three numbers")
        if unknown := set(self.metric_items or ()) - {*_PRECISIONS, *_RECALLS}:
            raise UserError(f"metric_items={sorted(unknown)}: supported are {[*_PRECISIONS, *_RECALLS]}")
        if self._coco_api:
            for number, entry in enumerate(self._coco_api.dataset.setdefault("annotations", []), 1):
                entry.update(id=number, iscrowd=entry.get("iscrowd", 0))
            self._coco_api.createIndex()

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        super().process(data_batch, data_samples)
        number = len(self.dataset_meta["classes"])
        for _, found in self.results[-len(data_samples) :]:
            if found["labels"].max(initial=-1) >= number:
                label = f"the model predicts label {found['labels'].max()}"
                remedy = "test with all classes that the model was trained for"
                raise UserError(f"{label}, and the data set has {number} classes, labels 0 to {number - 1}: {remedy}")

    def compute_metrics(self, results: list[tuple[dict, dict]]) -> dict[str, float]:
        truths, found = zip(*results, strict=True)
        self.img_ids = [each["img_id"] for each in found]
        if self.format_only or not set(self.metrics) <= _KINDS.keys():
            return super().compute_metrics(results)
        with TemporaryDirectory() as folder, redirect_stdout(None):  # pycocotools prints its progress
            prefix = self.outfile_prefix or f"{folder}/results"
            if self._coco_api is None:
                self._coco_api = COCO(self.gt_to_coco_json(truths, prefix))
            self._check_images()
            self.cat_ids = self._find_categories()
            files = self.results2json(found, prefix)
            if "segm" in self.metrics and "segm" not in files:
                raise UserError(f"metric={self.metrics}: the model does not predict masks; set metric='bbox'")
            entries = {kind: load(files[kind]) for kind in self.metrics}
            self._warn_of_zero(entries)
            evaluations = {kind: self._evaluate(kind, entries[kind]) for kind in self.metrics}
        items = self.metric_items or _PRECISIONS
        values = {f"{kind}_{item}": measure(each, item) for kind, each in evaluations.items() for item in items}
        categories = dict(zip(self.dataset_meta["classes"], self.cat_ids, strict=True))
        if self.classwise:  # after the means, because CheckpointHook(save_best="auto") takes the first
            for kind, evaluation in evaluations.items():
                for name, category in categories.items():
                    values[f"{kind}_{name}_precision"] = measure(evaluation, "mAP", category)
        if self.table:
            rows = tabulate_classes({_KINDS[kind]: each for kind, each in evaluations.items()}, categories)
            print_log(f"results per class:\n{AsciiTable(rows).table}", logger="current")
        return values

    def _find_categories(self) -> list[int]:
        """Return the categories' ids in the order of the data set's classes."""
        classes = list(self.dataset_meta["classes"])
        categories = [entry for entry in self._coco_api.dataset["categories"] if entry["name"] in classes]
        if (names := [entry["name"] for entry in categories]) != classes:
            text = f"ann_file of the evaluator has its categories as {names}, and the data set its classes as {classes}"
            raise UserError(f"{text}: each class needs one category, in the same order")
        return [entry["id"] for entry in categories]

    def _check_images(self) -> None:
        known, given = self._coco_api.imgs.keys(), set(self.img_ids)
        if unknown := given - known:
            raise UserError(f"ann_file of the evaluator has no image {min(unknown)}; set it to that of the data set")
        if left := known - given:
            text = f"{len(left)} of the {len(known)} images of ann_file are not in the data set, and are not evaluated"
            print_log(text, logger="current", level=30)

    def _warn_of_zero(self, entries: Mapping[str, list[dict]]) -> None:
        if not self._coco_api.getAnnIds(imgIds=self.img_ids, catIds=self.cat_ids, iscrowd=False):
            text = "no image has an object of these classes, so that AP is not defined"
        elif not all(entries.values()):
            remedy = "lower score_thr in model.test_cfg, or train longer"
            text = f"no detection passes the score threshold of the model, so that AP is 0: {remedy}"
        else:
            return
        print_log(text, logger="current", level=30)

    def _evaluate(self, kind: str, entries: list[dict]) -> COCOeval:
        if kind == "segm":
            for entry in entries:
                del entry["bbox"]  # pycocotools would take the size of an object from it
        return evaluate(
            self._coco_api,
            load_results(self._coco_api, entries),
            kind,
            categories=self.cat_ids,
            images=self.img_ids,
            ious=self.iou_thrs,
            limits=_LIMITS if set(_RECALLS).intersection(self.metric_items or ()) else (),
            evaluator=COCOevalMP if self.use_mp_eval else COCOeval,
        )


def load_results(truth: _COCO, entries: list[dict[str, Any]]) -> _COCO:
    """Return ``truth.loadRes(entries)``, which fails for an empty list."""
    if entries:
        return truth.loadRes(entries)
    results = _COCO()
    results.dataset = {"annotations": []}
    return results


def evaluate(
    truth: _COCO,
    detections: _COCO,
    kind: str,
    *,
    categories: Sequence[int] | None = None,
    images: Sequence[int] | None = None,
    ious: np.ndarray | None = None,
    limits: Sequence[int] = (),
    evaluator: type[COCOeval] = COCOeval,
) -> COCOeval:
    """Match detections with objects as pycocotools does, and accumulate precision and recall.

    1,000 detections of each class in an image count, or twice the objects of the fullest image.

    Args:
        kind: ``bbox`` or ``segm``.
        categories: ids of the categories that count; all by default.
        images: ids of the images that count; all by default.
        ious: thresholds in place of .5, .55, … .95.
        limits: further numbers of detections, up to 1,000, at which recall is measured.
        evaluator: pycocotools' class or mmdet's, which uses several processes.
    """
    evaluation = evaluator(truth, detections, kind)
    params, most = evaluation.params, 2 * max(map(len, truth.imgToAnns.values()), default=0)
    params.maxDets = [*limits, max(1000, most)]
    params.catIds = params.catIds if categories is None else list(categories)
    params.imgIds = params.imgIds if images is None else list(images)
    params.iouThrs = params.iouThrs if ious is None else ious
    evaluation.evaluate()
    evaluation.accumulate()
    return evaluation


def measure(evaluation: COCOeval, item: str, category: int | None = None) -> float:
    """Return a metric of mmdet, such as ``mAP_50`` or ``AR_s@1000``, of one category or as the mean over all.

    It is NaN where the data has no such object, or if the evaluation lacks the threshold.
    """
    params = evaluation.params
    name, _, limit = item.partition("@")
    name, _, part = name.partition("_")
    size = _SIZES.get(part, 0)
    classes = slice(None) if category is None else [params.catIds.index(category)]  # catIds are sorted
    if name == "AR":
        values = evaluation.eval["recall"][:, classes, size, params.maxDets.index(int(limit))]
    else:
        values = evaluation.eval["precision"][:, :, classes, size, -1]
    if part.isdigit():
        values = values[np.isclose(params.iouThrs, int(part) / 100)]
    values = values[values >= 0]
    return round(float(values.mean()), 3) if values.size else math.nan


def find_best_score(evaluation: COCOeval, category: int | None = None) -> tuple[float, float]:
    """Return the score from which on the detections have the highest F1, and this F1, at the first IoU, which is .5.

    They are of one category or of all. Both numbers are 0 if nothing is found.
    """
    scores, right, objects = _collect(evaluation, category)
    if not right.any():
        return 0.0, 0.0
    order = np.argsort(-scores, kind="stable")
    scores, f1 = scores[order], 2 * np.cumsum(right[order]) / (np.arange(1, len(order) + 1) + objects)
    f1[:-1][scores[1:] == scores[:-1]] = 0  # equal scores come together
    best = int(f1.argmax())
    return float(scores[best]), float(f1[best])


def _collect(evaluation: COCOeval, category: int | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Return scores of detections, which of them are right, and the number of objects; those of crowds do not count."""
    params = evaluation.params
    rows = range(len(params.catIds)) if category is None else [params.catIds.index(category)]
    number = len(params.imgIds)
    starts = [row * len(params.areaRng) * number for row in rows]  # [category, size, image]; the first size is "all"
    images = [each for start in starts for each in evaluation.evalImgs[start : start + number] if each]
    if not images:
        return np.zeros(0), np.zeros(0, bool), 0
    counts = np.concatenate([~np.array(each["dtIgnore"][0], bool) for each in images])
    scores = np.concatenate([each["dtScores"] for each in images])[counts]
    right = np.concatenate([each["dtMatches"][0] > 0 for each in images])[counts]
    return scores, right, int(sum((np.array(each["gtIgnore"]) == 0).sum() for each in images))


def tabulate_classes(evaluations: Mapping[str, COCOeval], categories: Mapping[str, int]) -> list[list[str]]:
    """Return rows of text: a head, each class, and all classes.

    The columns are the number of objects, AP and AP50 of each evaluation, and :func:`find_best_score` of the first one.
    ``categories`` are the ids of the classes by name.
    """
    first = next(iter(evaluations.values()))
    head = [f"{kind} {name}" for kind in evaluations for name in ("AP", "AP50")]
    rows = [["class", "objects", *head, f"best F1 (IoU {first.params.iouThrs[0]:g})", "from score"]]
    for name, category in [*categories.items(), ("all", None)]:
        objects = _collect(first, category)[2]
        values = [measure(each, item, category) for each in evaluations.values() for item in ("mAP", "mAP_50")]
        score, f1 = find_best_score(first, category)
        best = [f"{f1:.2f}" if objects else "-", format_score(score) if f1 else "-"]
        rows.append([name, str(objects), *("-" if math.isnan(value) else f"{value:.3f}" for value in values), *best])
    return rows


def format_score(score: float) -> str:
    """Return a score with two decimals, rounded down, so that the detection passes it as a threshold."""
    return f"{math.floor(score * 100 + 1e-6) / 100:.2f}"
