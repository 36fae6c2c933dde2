"""mmdet's CocoDataset with checks of the annotation file, the demo data in this format, and COCO's metric."""

import json
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from mmdet.datasets import CocoDataset as _CocoDataset
from mmdet.evaluation import CocoMetric as _CocoMetric
from mmengine.fileio import get_text, load
from mmengine.logging import print_log
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmlisa.registry import DATASETS, METRICS

from .annotations import find_bad_annotations, find_doubts
from .demo import Generated
from .demo_objects import CLASSES, PALETTE


@DATASETS.register_module()
class CocoDataset(_CocoDataset):
    """COCO-format detection and instance segmentation; takes mmdet's arguments.

    Attributes:
        problems: a line about each annotation that is left out, and about what is probably wrong with the whole file.

    Raises:
        FileNotFoundError: the annotation file is missing.
        ValueError: the file is not a COCO file, all of its annotations are bad, or its classes are not those of the data set in
            the same order. mmdet drops missing classes, and renames classes in another order, without a message.
    """

    def load_data_list(self) -> list[dict]:
        """Read the file as mmdet's method does, but only once, which matters with COCO's 450 MB."""
        content = json.loads(get_text(self.ann_file, backend_args=self.backend_args))
        if self.test_mode and isinstance(content, dict):
            content.setdefault("annotations", [])  # COCO's test-dev has none
        bad = self._find_bad(content)
        # The entries that mmdet's other methods read.
        self.cat_ids = [
            category["id"] for category in content["categories"] if category["name"] in self.metainfo["classes"]
        ]
        self.cat2label = {number: label for label, number in enumerate(self.cat_ids)}
        self.cat_img_map, entries = defaultdict(list), defaultdict(list)
        for entry in content["annotations"]:
            if entry["id"] not in bad:
                self.cat_img_map[entry["category_id"]].append(entry["image_id"])
                entries[entry["image_id"]].append(entry)
        return [
            self.parse_data_info(dict(raw_img_info=image | dict(img_id=image["id"]), raw_ann_info=entries[image["id"]]))
            for image in content["images"]
        ]

    def _find_bad(self, content: Any) -> dict[Any, str]:
        """Check the content of the file, and return its bad annotations."""
        with_mask = any(getattr(step, "with_mask", False) for step in self.pipeline.transforms)
        try:
            bad = find_bad_annotations(content, with_mask)
        except ValueError as error:
            raise ValueError(f"annotation file {self.ann_file}: {error}") from error
        self._check_classes([category["name"] for category in content["categories"]])
        self.problems = [f"annotation {number}: {reason}" for number, reason in bad.items()]
        if bad and len(bad) == len(content["annotations"]):
            boxes = ". To train on boxes, set with_mask=False in LoadAnnotations, mask_roi_extractor=None and mask_head=None"
            hint = boxes if "it has no segmentation" in bad.values() else ""
            raise ValueError(f"annotation file {self.ann_file}: no annotation is usable; {self.problems[0]}{hint}")
        self.problems += find_doubts(content)
        if self.problems:
            text = f"{len(self.problems)} problems, which mmlisa check-data lists, the first: {self.problems[0]}"
            print_log(f"annotation file {self.ann_file}: {text}", logger="current", level=30)
        return bad

    def _check_classes(self, names: list[str]) -> None:
        wanted = list(self.metainfo["classes"])
        if missing := [name for name in wanted if name not in names]:
            raise ValueError(
                f"annotation file {self.ann_file} lacks the classes {missing}; set metainfo.classes to the file's, {names}"
            )
        if (found := [name for name in names if name in wanted]) != wanted:
            raise ValueError(
                f"annotation file {self.ann_file} has its categories as {found}, and the data set its classes as {wanted}: each "
                "class needs one category, in the same order"
            )


@DATASETS.register_module()
class DemoCocoDataset(Generated, CocoDataset):
    """COCO-format demo data, generated under ``data_root`` (``data/demo``) on first use; otherwise :class:`CocoDataset`."""

    METAINFO: ClassVar = {"classes": CLASSES, "palette": PALETTE}


# The values of mmdet's CocoMetric, as (IoU, size) in the result of measure_precision; None for the mean over all IoUs.
_VALUES = {
    "mAP": (None, 0),
    "mAP_50": (0.5, 0),
    "mAP_75": (0.75, 0),
    "mAP_s": (None, 1),
    "mAP_m": (None, 2),
    "mAP_l": (None, 3),
}


@METRICS.register_module()
class CocoMetric(_CocoMetric):
    """mmdet's CocoMetric whose values count all detections, as :func:`measure_precision` does.

    pycocotools computes ``mAP`` from the 100 best detections of each class in an image, whatever ``proposal_nums`` says. It
    counts an annotation with id 0 as never found and needs ``iscrowd``, so annotations are renumbered and get it.

    Raises:
        ValueError: an option for recalls or for several processes, which this metric does not have.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        others = {*self.metrics} - {"bbox", "segm"} | {*(self.metric_items or ())} - {*_VALUES}
        if others or self.use_mp_eval:
            others = ", ".join(sorted(others)) or "use_mp_eval"
            raise ValueError(f"mmlisa.CocoMetric does not have {others}; set type='mmdet.CocoMetric' for it")
        if self._coco_api:
            for number, entry in enumerate(self._coco_api.dataset.get("annotations", ()), 1):
                entry.update(id=number, iscrowd=entry.get("iscrowd", 0))
            self._coco_api.createIndex()

    def compute_metrics(self, results: list[tuple[dict, dict]]) -> dict[str, float]:
        values = {}
        with TemporaryDirectory() as folder:
            writer = copy(self)  # without metrics, mmdet's method writes the predictions and evaluates nothing
            writer.metrics, writer.outfile_prefix = [], self.outfile_prefix or f"{folder}/results"
            _CocoMetric.compute_metrics(writer, results)
            for kind in () if self.format_only else self.metrics:
                values |= self._evaluate(
                    kind, writer._coco_api, load(f"{writer.outfile_prefix}.{kind}.json"), writer.cat_ids
                )
        return values

    def _evaluate(self, kind: str, truth: COCO, entries: list[dict], categories: list[int]) -> dict[str, float]:
        if kind == "segm":
            for entry in entries:
                del entry["bbox"]  # pycocotools would take the object's size from it
        found = truth.loadRes(entries) if entries else COCO()
        thresholds = np.atleast_1d(self.iou_thrs)
        precision = measure_precision(truth, found, kind, categories, thresholds, self.proposal_nums[-1])
        values = {}
        for name in self.metric_items or _VALUES:
            threshold, size = _VALUES[name]
            of_size = precision[..., size] if threshold is None else precision[thresholds == threshold][..., 0]
            values[f"{kind}_{name}"] = _mean(of_size, -1.0)
        if self.classwise:
            for index, number in enumerate(sorted(categories)):
                values[f"{truth.cats[number]['name']}_precision"] = _mean(precision[:, :, index, 0], np.nan)
        return values


def _mean(precision: np.ndarray, empty: float) -> float:
    known = precision[np.isfinite(precision)]
    return round(float(known.mean()), 3) if known.size else empty


def measure_precision(
    truth: COCO,
    found: COCO,
    kind: str,
    categories: Sequence[int] | None = None,
    thresholds: np.ndarray | None = None,
    most: int = 1000,
) -> np.ndarray:
    """Return COCO's precision ``[IoU, recall, class, size]``; sizes are all, small, medium, large; NaN where no object is.

    Args:
        truth, found: annotations and detections.
        kind: ``'bbox'`` or ``'segm'``.
        categories: ids of the classes; None for all.
        thresholds: IoUs from which on an object is found; None for COCO's.
        most: detections that count, of a class in an image; twice the objects of the fullest image if that is more.
    """
    evaluation = COCOeval(truth, found, kind)
    evaluation.params.maxDets = [max(most, 2 * max(map(len, truth.imgToAnns.values()), default=0))]
    if categories is not None:
        evaluation.params.catIds = categories
    if thresholds is not None:
        evaluation.params.iouThrs = thresholds
    evaluation.evaluate()
    evaluation.accumulate()
    values = evaluation.eval["precision"][..., 0]
    return np.where(values < 0, np.nan, values)
