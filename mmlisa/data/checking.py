"""Checks of a config's data: what would spoil a training, and what the data consist of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from tqdm import tqdm

from mmlisa.training.checks import compare_classes
from mmlisa.training.config import innermost_dataset

from .dataset import SPLITS
from .images import examine_image

# COCO's sizes of objects.
_SIDES = {"small (below 32 x 32 pixels)": 32**2, "medium": 96**2, "large (above 96 x 96)": float("inf")}
_LISTED = 20  # classes or problems that a report names


class Report:
    """Content of a data set, and its problems.

    Attributes:
        classes: names of the classes.
        problems: a line each, in the order in which they were found.
        digests: path of each image file by the hash of its content.
    """

    def __init__(self, dataset: Any) -> None:
        self.classes: Sequence[str] = dataset.metainfo.get("classes") or ()
        self.problems = [f"{dataset.ann_file}: {problem}" for problem in getattr(dataset, "problems", ())]
        self.digests: dict[bytes, str] = {}
        self._counts: Counter[int] = Counter()  # objects, images or pixels of each class, by label
        self._unit = "images"
        self._sizes: Counter[str] = Counter()
        self._images, self._empty = len(dataset), 0
        for index in tqdm(range(len(dataset)), "images", leave=False, disable=None):
            info = dataset.get_data_info(index)
            self._count(info)
            # CIFAR and MNIST hold the images themselves, and a video has many.
            if "img_path" in info and "num_frames" not in info:
                try:
                    self._check_image(info)
                except (ValueError, OSError) as error:
                    self.problems.append(f"{info['img_path']}: {error}")

    def lines(self) -> list[str]:
        """Return lines on the number of images, classes and sizes, and the first problems."""
        lines = [f"{self._images} images or videos, {self._empty} of them without annotations"]
        total = sum(self._counts.values()) or 1
        names = dict(enumerate(self.classes))
        named = [
            f"{names.get(label, f'unknown class {label}')} {f'{count / total:.1%}' if self._unit == 'pixels' else count}"
            for label, count in self._counts.most_common(_LISTED)
        ]
        lines += [f"{self._unit} per class: {', '.join(named)}"] if named else []
        if missing := [name for label, name in enumerate(self.classes) if label not in self._counts]:
            lines.append(
                f"{len(missing)} of {len(self.classes)} classes have no {self._unit}: {', '.join(missing[:_LISTED])}"
            )
        if self._sizes:
            lines.append(f"sizes: {', '.join(f'{size} {self._sizes[size]}' for size in _SIDES)}")
        return [*lines, *self.problems[:_LISTED]]

    def _count(self, info: Mapping[str, Any]) -> None:
        if "instances" in info:
            self._unit = "objects"
            for instance in info["instances"]:
                left, top, right, bottom = instance["bbox"]
                area = (right - left) * (bottom - top)
                self._counts[instance["bbox_label"]] += 1
                self._sizes[next(size for size, limit in _SIDES.items() if area <= limit)] += 1
            self._empty += not info["instances"]
        elif "gt_label" in info:
            self._counts.update(np.atleast_1d(info["gt_label"]).tolist())

    def _check_image(self, info: Mapping[str, Any]) -> None:
        """Read an image completely, and its class map.

        Raises:
            ValueError: the image or the class map is damaged, or they or the annotation differ in size.
        """
        stated = (info["width"], info["height"]) if "width" in info else None
        (width, height), digest, *_ = examine_image(Path(info["img_path"]), stated)
        self.digests[digest] = info["img_path"]
        if not (seg_map := info.get("seg_map_path")):
            return
        self._unit = "pixels"
        with Image.open(seg_map) as picture:
            values = np.asarray(picture)
        if values.shape != (height, width):
            raise ValueError(f"its class map {seg_map} has the shape {values.shape}, the image {(height, width)}")
        first = int(bool(info.get("reduce_zero_label")))  # then 0 is not annotated either, and class 0 is stored as 1
        renamed, labels = info.get("label_map") or {}, Counter()
        for value, number in zip(*np.unique(values, return_counts=True), strict=True):
            label = renamed.get(int(value) - first, int(value) - first)
            if label not in (-1, 255, 255 - first):
                labels[label] += int(number)
        self._empty += not labels
        if wrong := [label + first for label in labels if label >= len(self.classes)]:
            raise ValueError(f"its class map {seg_map} holds {wrong}, but there are {len(self.classes)} classes")
        self._counts += labels


def check_splits(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[tuple[str, Report]]:
    """Read every annotation and every image of a config's data sets, and yield the report of each split.

    The validation and the test are compared with the training: they need the same classes, and other images.
    """
    init_default_scope(cfg.get("default_scope") or "mmengine")
    seen, train = [], None
    for split in (name for name in SPLITS if name in splits):
        config = innermost_dataset(cfg, split)
        if not config or config in seen:  # most configs test on the validation data
            continue
        seen.append(config)
        changes = {"filter_cfg": None} if "filter_cfg" in config else {}
        if config.type in ("CocoDataset", "mmdet.CocoDataset"):  # ours reports the annotations that mmdet drops
            changes["type"] = "mmlisa.CocoDataset"
        report = Report(DATASETS.build({**config, **changes}))
        if split == "train":
            train = report
        elif train:
            if difference := compare_classes(train.classes, report.classes):
                report.problems.append(difference)
            shared = sorted(report.digests[key] for key in train.digests.keys() & report.digests.keys())
            report.problems += [f"{path}: the same image is in the training data" for path in shared]
        yield split, report
