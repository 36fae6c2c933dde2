"""mmdet's CocoDataset with checks of the annotation file, the demo data in this format, and COCO's metric."""

import json
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from mmdet.datasets import CocoDataset as _CocoDataset
from mmdet.evaluation import CocoMetric as _CocoMetric
from mmengine.fileio import get, load
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
        content = json.loads(get(self.ann_file, backend_args=self.backend_args))
        with_mask = any(getattr(step, "with_mask", False) for step in self.pipeline.transforms)
        try:
            self._bad = find_bad_annotations(content, with_mask)
        except ValueError as error:
            raise ValueError(f"annotation file {self.ann_file}: {error}") from error
        self._check_classes([category["name"] for category in content["categories"]])
        self.problems = [f"annotation {number}: {reason}" for number, reason in self._bad.items()]
        if self._bad and len(self._bad) == len(content["annotations"]):
            boxes = ". To train on boxes, set with_mask=False in LoadAnnotations, mask_roi_extractor=None and mask_head=None"
            hint = boxes if "it has no segmentation" in self._bad.values() else ""
            raise ValueError(f"annotation file {self.ann_file}: no annotation is usable; {self.problems[0]}{hint}")
        self.problems += find_doubts(content)
        if self.problems:
            text = f"{len(self.problems)} problems, which mmlisa check-data lists, the first: {self.problems[0]}"
            print_log(f"annotation file {self.ann_file}: {text}", logger="current", level=30)
        return super().load_data_list()

    def parse_data_info(self, raw_data_info: dict[str, Any]) -> dict[str, Any]:
        usable = [entry for entry in raw_data_info["raw_ann_info"] if entry["id"] not in self._bad]
        return super().parse_data_info({**raw_data_info, "raw_ann_info": usable})

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


@METRICS.register_module()
class CocoMetric(_CocoMetric):
    """mmdet's CocoMetric whose ``bbox_mAP`` and ``segm_mAP`` count all detections, as :func:`measure_precision` does.

    pycocotools computes them from the 100 best detections of each class in an image, whatever ``proposal_nums`` says. It
    counts an annotation with id 0 as never found and needs ``iscrowd``, so annotations are renumbered and get it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for number, entry in enumerate(self._coco_api.dataset["annotations"] if self._coco_api else (), 1):
            entry.update(id=number, iscrowd=entry.get("iscrowd", 0))
        if self._coco_api:
            self._coco_api.createIndex()

    def compute_metrics(self, results: list[tuple[dict, dict]]) -> dict[str, float]:
        values = super().compute_metrics(results)
        with TemporaryDirectory() as folder:
            files = self.results2json([found for _, found in results], f"{folder}/results")
            for kind in self.metrics:
                if entries := load(files[kind]):
                    precision = measure_precision(self._coco_api, self._coco_api.loadRes(entries), kind)[..., 0]
                    values[f"{kind}_mAP"] = round(np.nansum(precision) / max(1, np.isfinite(precision).sum()), 3)
        return values


def measure_precision(truth: COCO, found: COCO, kind: str) -> np.ndarray:
    """Return COCO's precision ``[IoU, recall, class, size]``; sizes are all, small, medium, large; NaN where no object is.

    1,000 detections of each class in an image count, or twice the objects of the fullest image.
    """
    evaluation = COCOeval(truth, found, kind)
    evaluation.params.maxDets = [max(1000, 2 * max(map(len, truth.imgToAnns.values()), default=0))]
    evaluation.evaluate()
    evaluation.accumulate()
    values = evaluation.eval["precision"][..., 0]
    return np.where(values < 0, np.nan, values)
