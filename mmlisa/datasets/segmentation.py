"""mmseg's data sets: the demo data, and images and class maps that a file lists, with their metric."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from mmengine.evaluator import DumpResults
from mmseg.datasets import BaseSegDataset
from mmseg.evaluation import IoUMetric as _IoUMetric
from PIL import Image
from torch import Tensor

from mmlisa.registry import DATASETS, METRICS

from .demo import CLASSES, PALETTE, Generated


@DATASETS.register_module()
class PairedSegDataset(BaseSegDataset):
    """Images and class maps wherever they lie: mmseg's BaseSegDataset builds both paths from one name and two suffixes.

    ``ann_file`` has a line per image: its path and that of its class map under ``data_root``, separated by a tab.
    """

    def load_data_list(self) -> list[dict]:
        root = Path(self.data_root or "")
        pairs = [line.split("\t") for line in Path(self.ann_file).read_text(encoding="utf-8").splitlines()]
        shared = dict(label_map=self.label_map, reduce_zero_label=self.reduce_zero_label, seg_fields=[])
        return [dict(img_path=str(root / image), seg_map_path=str(root / path), **shared) for image, path in pairs]


@METRICS.register_module()
class DumpWithoutLogits(DumpResults):
    """MMEngine's ``DumpResults`` without a segmentor's logits: with 150 classes, 160 MB per image of 512x512 pixels."""

    def process(self, data_batch: Any, predictions: Sequence[Mapping[str, Any]]) -> None:
        without = [{key: value for key, value in sample.items() if key != "seg_logits"} for sample in predictions]
        super().process(data_batch, without)


@METRICS.register_module()
class IoUMetric(_IoUMetric):
    """mmseg's IoUMetric. With ``classwise``, it returns the values per class, too, such as ``IoU.cat`` in percent.

    ``CheckpointHook(save_best="IoU.cat", rule="greater")`` keeps the best checkpoint for a class.
    """

    def __init__(self, *args: Any, classwise: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.classwise = classwise

    def compute_metrics(self, results: list[tuple[Tensor, ...]]) -> dict[str, float]:
        values = super().compute_metrics(results)
        if self.classwise and values:
            areas = [sum(each) for each in zip(*results, strict=True)]
            measured = self.total_area_to_metrics(*areas, self.metrics, self.nan_to_num, self.beta)
            del measured["aAcc"]
            for name, per_class in measured.items():
                for label, value in zip(self.dataset_meta["classes"], per_class, strict=True):
                    values[f"{name}.{label}"] = round(100 * float(value), 2)
        return values


@METRICS.register_module()
class PairedIoUMetric(IoUMetric):
    """:class:`IoUMetric` that writes 8-bit class maps to ``<predictions>/<image's path under data_root>.png``.

    mmseg names them by the image alone, so that ``a/001.jpg`` and ``b/001.jpg`` replace each other.
    """

    def __init__(self, *args: Any, data_root: str, predictions: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.data_root, self.predictions = data_root, predictions

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        super().process(data_batch, data_samples)
        for sample in data_samples:
            name = sample["img_path"].removeprefix(self.data_root).lstrip("/")  # an image may lie elsewhere
            target = Path(self.predictions, f"{name}.png")
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(sample["pred_sem_seg"]["data"].squeeze().cpu().numpy().astype(np.uint8)).save(target)


@DATASETS.register_module()
class DemoSegDataset(Generated, BaseSegDataset):
    """Class maps in ADE20K's layout, made under ``data_root`` on first use.

    The nine classes include the background, 0. There are no unlabelled pixels, and ``reduce_zero_label`` stays False.
    ``data_prefix`` is ``dict(img_path='ade/images/training', seg_map_path='ade/annotations/training')``, or ``validation``.
    """

    METAINFO: ClassVar = {"classes": ("background", *CLASSES), "palette": [[0, 0, 0], *map(list, PALETTE)]}
