"""COCO's metric of the trainings, with the average precision of the report."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mmdet.evaluation import CocoMetric as _CocoMetric
from pycocotools.coco import COCO

from mmlisa.registry import METRICS

from .evaluation import mean, measure_precision


@METRICS.register_module()
class CocoMetric(_CocoMetric):
    """mmdet's CocoMetric whose ``bbox_mAP`` and ``segm_mAP`` count all detections, and are 0 without detections.

    pycocotools computes them from the 100 best detections of an image, whatever ``proposal_nums`` says. Without detections,
    mmdet returns no metrics, so that ``save_best`` fails.
    """

    def compute_metrics(self, results: list[tuple[dict, dict]]) -> dict[str, float]:
        values: dict[str, Any] = super().compute_metrics(results)
        with TemporaryDirectory() as folder:
            files = self.results2json([found for _, found in results], f"{folder}/results")
            for kind in self.metrics:
                entries = json.loads(Path(files[kind]).read_text())
                found = self._coco_api.loadRes(entries) if entries else COCO()
                values[f"{kind}_mAP"] = round(mean(measure_precision(self._coco_api, found, kind)[..., 0]), 3)
        return values
