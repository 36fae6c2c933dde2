"""Checks of a config's data for what would spoil a training."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from tqdm import tqdm

from mmlisa.errors import UserError
from mmlisa.training.config import innermost_dataset

from .dataset import UNKNOWN
from .folder import SPLITS, examine_image


def check_splits(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[tuple[str, int, list[str]]]:
    """Read every annotation and every image of a config's data sets; yield split, number of samples and problems of each.

    The validation and the test need other images than the training.
    """
    init_default_scope(cfg.get("default_scope") or "mmengine")
    seen, trained = [], set()  # configs, and digests of images
    for split in (name for name in SPLITS if name in splits):
        config = innermost_dataset(cfg, split)
        if not config or config in seen:  # most configs test on the validation data
            continue
        seen.append(config)
        changes = {"filter_cfg": None} if "filter_cfg" in config else {}
        if config.type in ("CocoDataset", "mmdet.CocoDataset"):  # ours reports the annotations that mmdet drops
            changes["type"] = "mmlisa.CocoDataset"
        source, digests = DATASETS.build({**config, **changes}), {}
        problems = [f"{source.ann_file}: {problem}" for problem in getattr(source, "problems", ())]
        for index in tqdm(range(len(source)), "images", leave=False, disable=None):
            info = source.get_data_info(index)
            path = info.get("img_path")
            if not path or "num_frames" in info:  # CIFAR and MNIST hold the images themselves, and a video has many
                continue
            try:
                facts = examine_image(Path(path), (info["width"], info["height"]) if "width" in info else None)
                digests[path] = facts.digest
                if info.get("seg_map_path") and "reduce_zero_label" in info:  # mmseg's
                    _check_map(info, facts.size, len(source.metainfo.get("classes") or ()))
            except (ValueError, OSError) as error:
                problems.append(f"{path}: {error}")
        shared = sorted(path for path, digest in digests.items() if digest in trained)
        problems += [f"{path}: the same image is in the training data" for path in shared]
        if split == "train":
            trained = {*digests.values()}
        yield split, len(source), problems


def _check_map(info: Mapping[str, Any], size: tuple[int, int], number: int) -> None:
    """Refuse a class map of another size than its image's, (width, height), or with labels from ``number`` on."""
    where = f"its class map {info['seg_map_path']}"
    with Image.open(info["seg_map_path"]) as picture:
        values = np.asarray(picture)
    if values.shape != size[::-1]:
        raise UserError(f"{where} has the shape {values.shape}, the image {size[::-1]}")
    first = int(bool(info["reduce_zero_label"]))  # then 0 is not annotated either, and class 0 is stored as 1
    renamed = info.get("label_map") or {}
    labels = {value: renamed.get(value - first, value - first) for value in np.unique(values).tolist()}
    if wrong := [
        value for value, label in labels.items() if label >= number and label not in (UNKNOWN, UNKNOWN - first)
    ]:
        raise UserError(f"{where} holds {wrong}, but there are {number} classes")
