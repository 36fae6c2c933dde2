"""Checks of a config's data: what would stop or spoil a training, and what the data consist of."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from tqdm import tqdm

from mmlisa.training.config import innermost_dataset, type_name

from .transforms import BadImageError, LoadImageFromFile, find_fault

# COCO's limits.
_SIDES = {"small (below 32 x 32 pixels)": 32**2, "medium": 96**2, "large (above 96 x 96)": float("inf")}
_LISTED = 20  # classes that a report names


class Finding(NamedTuple):
    """One thing that is wrong: the file or entry, and the reason."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass
class Report:
    """What a data set consists of and what is wrong with it.

    Attributes:
        classes: names of the classes.
        findings: everything that is wrong, in the order in which it was found.
        counts: objects, images or pixels of each class, by label.
        sizes: objects by size.
        images: number of images or videos.
        empty: number of images without an annotation.
        crowds: number of objects that are crowds or difficult.
        unit: what ``counts`` counts.
        digests: path of each image file by the hash of its content.
    """

    classes: Sequence[str]
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    images: int = 0
    empty: int = 0
    crowds: int = 0
    unit: str = "images"
    digests: dict[bytes, str] = field(default_factory=dict)

    def summary(self) -> list[str]:
        """Return lines on the number of images, classes and sizes."""
        lines = [f"{self.images} images or videos, {self.empty} of them without annotations"]
        total = sum(self.counts.values()) or 1
        amount = "{:.1%}" if self.unit == "pixels" else "{}"
        named = [
            f"{self._name(label)} {amount.format(count / total if self.unit == 'pixels' else count)}"
            for label, count in self.counts.most_common(_LISTED)
        ]
        if named:
            more = f" and {len(self.counts) - _LISTED} more classes" if len(self.counts) > _LISTED else ""
            lines.append(f"{self.unit} per class: {', '.join(named)}{more}")
        if missing := [name for label, name in enumerate(self.classes) if label not in self.counts]:
            shown = f"{', '.join(missing[:_LISTED])}{', …' if len(missing) > _LISTED else ''}"
            lines.append(f"{len(missing)} of {len(self.classes)} classes have no {self.unit}: {shown}")
        if self.crowds:
            lines.append(f"{self.crowds} objects are crowds or difficult; training and evaluation ignore them")
        if self.sizes:
            lines.append(f"sizes: {', '.join(f'{size} {self.sizes[size]}' for size in _SIDES)}")
        return lines

    def _name(self, label: int) -> str:
        return self.classes[label] if 0 <= label < len(self.classes) else f"class {label}"


def build_dataset(cfg: Config, split: str) -> Any:
    """Build the innermost data set of a split, without filters. Bad entries are left out and listed instead of refused.

    Raises:
        FileNotFoundError, ValueError: there are no data to check.
    """
    init_default_scope(cfg.get("default_scope") or "mmengine")  # None in new-style configs
    dataset = innermost_dataset(cfg, split)
    if "ConcatDataset" in str(cfg.get(f"{split}_dataloader")):
        raise ValueError(
            f"{split}_dataloader.dataset is a ConcatDataset; check one data set at a time, with a config for each"
        )
    options: dict[str, Any] = {"serialize_data": False}
    if type_name(dataset).endswith("CocoDataset"):
        from mmdet.datasets import CocoDataset as MmdetDataset

        from .coco import CocoDataset

        with DATASETS.switch_scope_and_registry(None) as registry:
            found = dataset.type if isinstance(dataset.type, type) else registry.get(dataset.type)
        found = CocoDataset if found is MmdetDataset else found
        options |= {"type": found or dataset.type, "filter_cfg": None, "test_mode": False}
        if found and issubclass(found, CocoDataset):
            options["on_bad_annotation"] = "skip"
    elif type_name(dataset).endswith("VideoDataset"):
        options["on_bad_line"] = "skip"
    return DATASETS.build({**dataset, **options})


def check_dataset(dataset: Any) -> Report:
    """Read every annotation and every image or video of a data set."""
    file = str(getattr(dataset, "ann_file", ""))
    report = Report(dataset.metainfo.get("classes") or ())
    report.findings += [Finding(file, str(problem)) for problem in getattr(dataset, "problems", ())]
    if suspicion := getattr(dataset, "suspicion", ""):
        report.findings.append(Finding(file, suspicion))
    first = next(iter(getattr(getattr(dataset, "pipeline", None), "transforms", ())), None)
    load = first if isinstance(first, LoadImageFromFile) else LoadImageFromFile()
    for index in tqdm(range(len(dataset)), "images", leave=False, disable=None):
        info = dataset.get_data_info(index)
        report.images += 1
        _count(report, info)
        if isinstance(info.get("num_frames"), int):
            report.findings += [Finding(info["img_path"], fault) for fault in dataset.find_faults(info)]
        elif "img_path" in info:  # CIFAR and MNIST hold the images themselves
            report.findings += _check_image(report, info, load)
    if report.images and report.empty == report.images:
        report.findings.append(Finding(file, f"none of the {report.images} images has annotations"))
    return report


def find_shared(train: Report, val: Report) -> list[Finding]:
    """Return the images that two splits share, by content. A validation on training images measures nothing."""
    shared = sorted(train.digests.keys() & val.digests.keys(), key=val.digests.__getitem__)
    return [
        Finding(val.digests[key], f"the same image is in the training data, {train.digests[key]}") for key in shared
    ]


def group(findings: Iterable[Finding], most: int = 3) -> list[str]:
    """Return a line per finding, and one line for all further findings whose reasons differ only in names and numbers."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kind = re.sub(r"'[^']*'|\[[^]]*\]|\([^)]*\)|\S*/\S*|\S*\d\S*", "…", finding.reason)
        kinds.setdefault(kind, []).append(finding)
    lines = []
    for same in kinds.values():
        lines += map(str, same[:most])
        if len(same) > most:
            lines.append(f"… and {len(same) - most} more like this")
    return lines


def _count(report: Report, info: Mapping[str, Any]) -> None:
    if "instances" in info:
        report.unit = "objects"
        for instance in info["instances"]:
            left, top, right, bottom = instance["bbox"]
            area = (right - left) * (bottom - top)
            report.counts[instance["bbox_label"]] += 1
            report.crowds += bool(instance.get("ignore_flag"))
            report.sizes[next(size for size, limit in _SIDES.items() if area <= limit)] += 1
        report.empty += not info["instances"]
    elif "gt_label" in info:
        labels = np.atleast_1d(info["gt_label"]).tolist()
        report.counts.update(labels)
        if wrong := [label for label in labels if report.classes and not 0 <= label < len(report.classes)]:
            reason = f"the labels {wrong[:8]} do not exist, the highest is {len(report.classes) - 1}"
            report.findings.append(Finding(info.get("img_path", ""), reason))


def _check_image(report: Report, info: Mapping[str, Any], load: LoadImageFromFile) -> list[Finding]:
    path = info["img_path"]
    if not Path(path).is_file():
        return [Finding(path, "the image does not exist")]
    try:
        height, width = load.load({"img_path": path})["img_shape"]
    except BadImageError as error:
        return [Finding(path, str(error).removeprefix(f"image {path} "))]
    report.digests[blake2b(Path(path).read_bytes(), digest_size=16).digest()] = path
    findings = []
    stated = (info.get("height", height), info.get("width", width))
    if stated != (height, width):
        reason = f"the image is {width} x {height} pixels, its annotation says {stated[1]} x {stated[0]}"
        findings.append(Finding(path, reason))
    if labels := info.get("seg_map_path"):
        findings += _check_class_map(report, info, labels, (height, width))
    return findings


def _check_class_map(report: Report, info: Mapping[str, Any], path: str, size: tuple[int, int]) -> list[Finding]:
    report.unit = "pixels"
    if not Path(path).is_file():
        return [Finding(path, f"the class map of {info['img_path']} does not exist")]
    if fault := find_fault(Path(path).read_bytes(), formats=None):
        return [Finding(path, fault)]
    try:
        with Image.open(path) as image:
            values = np.asarray(image)
    except Exception as error:  # Pillow's parsers raise many types
        return [Finding(path, f"is damaged: {error}")]
    if values.shape != size:
        given = " x ".join(map(str, (values.shape[1], values.shape[0], *values.shape[2:])))
        return [Finding(path, f"the class map is {given}, the image {size[1]} x {size[0]} pixels")]
    first = int(bool(info.get("reduce_zero_label")))  # then 0 is not annotated either, and class 0 is stored as 1
    renamed, labels, wrong = info.get("label_map") or {}, Counter(), []
    for value, count in zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True):
        label = 255 if value == 255 or value < first else int(value) - first
        label = renamed.get(label, label)
        if label != 255:  # not annotated
            labels[label] += count
            wrong += [int(value)] * (label >= len(report.classes))
    report.counts += labels
    report.empty += not labels
    if report.classes and wrong:
        highest = max({len(report.classes) - 1, *renamed} - {255}) + first
        return [Finding(path, f"the classes {wrong[:8]} do not exist, the highest is {highest}")]
    return []
