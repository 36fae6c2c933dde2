"""Data sets and metrics of classifiers: the demo data, ImageNet-V2, and ImageNet's reassessed labels (ReaL)."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from mmengine.evaluator import BaseMetric
from mmpretrain.datasets import CustomDataset

from mmlisa.registry import DATASETS, METRICS

from .demo import CLASSES, Generated


@DATASETS.register_module()
class DemoClsDataset(Generated, CustomDataset):
    """One object per image in class folders, made under ``data_root`` on first use.

    ``data_prefix`` is ``'cls/train'`` or ``'cls/val'``.
    """

    METAINFO: ClassVar = {"classes": CLASSES}


@DATASETS.register_module()
class NumberedFolders(CustomDataset):
    """Class folders whose names are the labels, as ImageNet-V2 has them: ``0``, ``1``, … ``999``."""

    def _find_samples(self) -> list[tuple[str, int]]:
        samples = super()._find_samples()
        self._metainfo["classes"] = tuple(sorted(self.folder_to_idx, key=int))
        return [(name, int(Path(name).parts[0])) for name, _ in samples]


@METRICS.register_module()
class RealAccuracy(BaseMetric):
    """Top-1 accuracy in percent on the reassessed labels of ImageNet (Beyer et al., "Are we done with ImageNet?").

    A prediction is right if it is one of the labels of its image. Images without labels do not count. ``ann_file`` is the
    authors' ``real.json``: the labels of each of the 50,000 validation images in the order of their numbers.
    """

    default_prefix = "real"

    def __init__(self, ann_file: str, **options: Any) -> None:
        super().__init__(**options)
        self.labels: list[list[int]] = json.loads(Path(ann_file).read_text())

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        for sample in data_samples:
            number = int(re.search(r"(\d+)\.\w+$", sample["img_path"])[1])
            if labels := self.labels[number - 1]:
                self.results.append(int(sample["pred_score"].argmax()) in labels)

    def compute_metrics(self, results: list[bool]) -> dict[str, float]:
        return {"top1": 100 * sum(results) / len(results)}
