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

from mmlisa.errors import UserError
from mmlisa.training.checks import compare_classes
from mmlisa.training.config import innermost_dataset

from .dataset import SPLITS, UNKNOWN, Dataset, Sample
from .formats.objects import count_values
from .images import examine_image


def check_splits(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[tuple[str, Dataset]]:
    """Read every annotation and every image of a config's data sets, and yield the content of each split; its notes are problems.

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
        dataset = _read(DATASETS.build({**config, **changes}), split)
        if split == "train":
            train = dataset
        elif train:
            dataset.notes += filter(None, [compare_classes(train.classes, dataset.classes)])
            digests = {sample.digest for sample in train.samples if sample.digest}
            shared = sorted(sample.path for sample in dataset.samples if sample.digest in digests)
            dataset.notes += [f"{path}: the same image is in the training data" for path in shared]
        yield split, dataset


def _read(source: Any, split: str) -> Dataset:
    """Return the content of a data set of MMEngine."""
    data = Dataset(Path(), "classification", list(source.metainfo.get("classes") or ()), [])
    data.notes = [f"{source.ann_file}: {problem}" for problem in getattr(source, "problems", ())]
    for index in tqdm(range(len(source)), "images", leave=False, disable=None):
        info = source.get_data_info(index)
        sample = Sample(str(info.get("img_path", "")), split)
        data.samples.append(sample)
        data.task = "detection" if "instances" in info else "segmentation" if info.get("seg_map_path") else data.task
        for instance in info.get("instances", ()):
            left, top, right, bottom = instance["bbox"]
            entry = {"bbox": [left, top, right - left, bottom - top], "category_id": instance["bbox_label"]}
            sample.objects.append(entry | {"iscrowd": instance.get("ignore_flag", 0)})
        if "gt_label" in info:
            sample.counts = Counter(np.atleast_1d(info["gt_label"]).tolist())
        if not sample.path or "num_frames" in info:  # CIFAR and MNIST hold the images themselves, and a video has many
            continue
        try:
            stated = (info["width"], info["height"]) if "width" in info else None
            sample.size, sample.digest, *_ = examine_image(Path(sample.path), stated)
            if info.get("seg_map_path"):
                sample.counts = _count_map(info, sample.size, len(data.classes))
        except (ValueError, OSError) as error:
            data.notes.append(f"{sample.path}: {error}")
    return data


def _count_map(info: Mapping[str, Any], size: tuple[int, int], number: int) -> Counter[int]:
    """Return the number of pixels of each label in a class map of an image of ``size`` (width, height)."""
    where = f"its class map {info['seg_map_path']}"
    with Image.open(info["seg_map_path"]) as picture:
        values = np.asarray(picture)
    if values.shape != size[::-1]:
        raise UserError(f"{where} has the shape {values.shape}, the image {size[::-1]}")
    first = int(bool(info.get("reduce_zero_label")))  # then 0 is not annotated either, and class 0 is stored as 1
    renamed, labels = info.get("label_map") or {}, Counter()
    for value, count in count_values(values).items():
        label = renamed.get(value - first, value - first)
        if label not in (-1, UNKNOWN, UNKNOWN - first):
            labels[label] += count
    if wrong := [label + first for label in labels if label >= number]:
        raise UserError(f"{where} holds {wrong}, but there are {number} classes")
    return labels
