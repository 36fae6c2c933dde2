"""Checks of a config's data: what would spoil a training, and what the data consist of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from tqdm import tqdm

from mmlisa.training.checks import compare_classes
from mmlisa.training.config import innermost_dataset

from .folder import SPLITS, examine_image

# COCO's sizes of objects.
_SIDES = {"small (below 32 x 32 pixels)": 32**2, "medium": 96**2, "large (above 96 x 96)": float("inf")}
_LISTED = 20  # classes or problems that a report names


@dataclass
class Report:
    """Content of a data set, and its problems.

    Attributes:
        classes: names of the classes.
        problems: a line each, in the order in which they were found.
        counts: objects, images or pixels of each class, by label.
        unit: what ``counts`` counts.
        sizes: objects by size.
        images: number of images or videos.
        empty: number of images without annotations.
        digests: path of each image file by the hash of its content.
    """

    classes: Sequence[str]
    problems: list[str] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    unit: str = "images"
    sizes: Counter[str] = field(default_factory=Counter)
    images: int = 0
    empty: int = 0
    digests: dict[bytes, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return lines on the number of images, classes and sizes, and the first problems."""
        lines = [f"{self.images} images or videos, {self.empty} of them without annotations"]
        total = sum(self.counts.values()) or 1
        names = dict(enumerate(self.classes))
        named = [
            f"{names.get(label, f'unknown class {label}')} {f'{count / total:.1%}' if self.unit == 'pixels' else count}"
            for label, count in self.counts.most_common(_LISTED)
        ]
        lines += [f"{self.unit} per class: {', '.join(named)}"] if named else []
        if missing := [name for label, name in enumerate(self.classes) if label not in self.counts]:
            lines.append(
                f"{len(missing)} of {len(self.classes)} classes have no {self.unit}: {', '.join(missing[:_LISTED])}"
            )
        if self.sizes:
            lines.append(f"sizes: {', '.join(f'{size} {self.sizes[size]}' for size in _SIDES)}")
        return [*lines, *self.problems[:_LISTED]]


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
        report = _check_dataset(DATASETS.build({**config, **changes}))
        if split == "train":
            train = report
        elif train:
            if difference := compare_classes(train.classes, report.classes):
                report.problems.append(difference)
            shared = sorted(report.digests[key] for key in train.digests.keys() & report.digests.keys())
            report.problems += [f"{path}: the same image is in the training data" for path in shared]
        yield split, report


def _check_dataset(dataset: Any) -> Report:
    report = Report(dataset.metainfo.get("classes") or ())
    report.problems += [f"{dataset.ann_file}: {problem}" for problem in getattr(dataset, "problems", ())]
    for index in tqdm(range(len(dataset)), "images", leave=False, disable=None):
        info = dataset.get_data_info(index)
        report.images += 1
        _count(report, info)
        # CIFAR and MNIST hold the images themselves, and a video has many.
        if "img_path" in info and "num_frames" not in info:
            try:
                _check_image(report, info)
            except (ValueError, OSError) as error:
                report.problems.append(str(error))
    return report


def _count(report: Report, info: Mapping[str, Any]) -> None:
    if "instances" in info:
        report.unit = "objects"
        for instance in info["instances"]:
            left, top, right, bottom = instance["bbox"]
            area = (right - left) * (bottom - top)
            report.counts[instance["bbox_label"]] += 1
            report.sizes[next(size for size, limit in _SIDES.items() if area <= limit)] += 1
        report.empty += not info["instances"]
    elif "gt_label" in info:
        report.counts.update(np.atleast_1d(info["gt_label"]).tolist())


def _check_image(report: Report, info: Mapping[str, Any]) -> None:
    """Read an image completely, and its class map.

    Raises:
        ValueError: the image or the class map is damaged, or they or the annotation differ in size.
    """
    stated = (info["width"], info["height"]) if "width" in info else None
    (width, height), digest = examine_image(Path(info["img_path"]), stated)
    report.digests[digest] = info["img_path"]
    if not (seg_map := info.get("seg_map_path")):
        return
    report.unit = "pixels"
    with Image.open(seg_map) as picture:
        values = np.asarray(picture)
    if values.shape != (height, width):
        raise ValueError(f"{seg_map}: the class map has the shape {values.shape}, its image {(height, width)}")
    first = int(bool(info.get("reduce_zero_label")))  # then 0 is not annotated either, and class 0 is stored as 1
    renamed, labels = info.get("label_map") or {}, Counter()
    for value, number in zip(*np.unique(values, return_counts=True), strict=True):
        label = renamed.get(int(value) - first, int(value) - first)
        if label not in (-1, 255, 255 - first):
            labels[label] += int(number)
    report.empty += not labels
    if wrong := [label + first for label in labels if label >= len(report.classes)]:
        raise ValueError(f"{seg_map}: the class map holds {wrong}, but there are {len(report.classes)} classes")
    report.counts += labels
