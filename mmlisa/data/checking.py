"""Checks of a config's data for what would spoil a training."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
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

_SECONDS, _MOST_MAPS = 1.0, 50  # for a look at the class maps of a split
_PACKAGES = {"mmcv", "mmseg", "mmlisa"}  # whose steps keep the labels of class maps


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
        source, digests = _build({**config, **changes}), {}
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


def look_at_class_maps(cfg: Config) -> list[str]:
    """Compare some class maps of mmseg's training and validation data with the classes, for a second each.

    The pipelines' own steps load them. Data sets with steps of other packages, which may change labels, are left out. The
    returned lines say how many maps were read.

    Raises:
        UserError: a map holds labels without a class, a data set has no image, or two data sets of one type differ in
            ``reduce_zero_label``.
    """
    if cfg.get("default_scope") != "mmseg":
        return []
    init_default_scope("mmseg")
    configs = {split: innermost_dataset(cfg, split) for split in ("train", "val")}
    built = {split: _build(config) for split, config in configs.items() if config}
    built = {split: source for split, source in built.items() if hasattr(source, "reduce_zero_label")}  # mmseg's
    zeros = {split: source.reduce_zero_label for split, source in built.items()}
    if len({type(source) for source in built.values()}) == 1 and len({*zeros.values()}) == 2:
        stated = (
            f"train_dataloader.dataset has reduce_zero_label={zeros['train']}, val_dataloader.dataset {zeros['val']}"
        )
        raise UserError(f"{stated}: a value of the class maps means another class in each; set both alike")
    notes = []
    for split, source in built.items():
        number, packages = len(source.metainfo.get("classes") or ()), {_package(step) for step in _steps(source)}
        if not number or packages - _PACKAGES:
            continue
        end = monotonic() + _SECONDS
        looked_at = 0
        for index in sorted({index * len(source) // _MOST_MAPS for index in range(_MOST_MAPS)}):
            info, labels = source.get_data_info(index), _load_labels(source, index)
            if wrong := [label for label in labels if label >= number and label != source.ignore_index]:
                where = f"{info['seg_map_path']} holds the labels {wrong}"
                named = f"{split}_dataloader.dataset names {number} classes"
                hint = "reduce_zero_label=True leaves 0 out" if wrong == [number] else "name all in metainfo.classes"
                raise UserError(f"{where}, but {named}; {hint}, and `mmlisa check-data CONFIG` lists all such maps")
            looked_at += 1
            if monotonic() > end:
                break
        if looked_at < len(source):
            notes.append(f"read {looked_at} of the {len(source)} class maps of {split}; mmlisa check-data reads all")
    return notes


def _build(config: Mapping[str, Any]) -> Any:
    """Build a data set; mmseg's without an image is a UserError that names the folder and the suffix."""
    try:
        return DATASETS.build(config)
    except ValueError as error:
        source = DATASETS.build({**config, "lazy_init": True})
        if not hasattr(source, "img_suffix") or source.load_data_list():
            raise
        folder, suffix = source.data_prefix.get("img_path"), source.img_suffix
        found = sorted({path.suffix for path in Path(folder or "").rglob("*") if path.is_file()})
        listed = f"it holds files that end in {', '.join(found)}" if found else "it is empty"
        raise UserError(f"no image of '{folder}' ends in img_suffix='{suffix}'; {listed}") from error


def _steps(source: Any) -> list[Any]:
    return source.pipeline.transforms


def _package(step: Any) -> str:
    return type(step).__module__.partition(".")[0]


def _load_labels(source: Any, index: int) -> list[int]:
    """Return the labels in a class map, as the steps ``Load…`` of the pipeline read it; empty if they read none."""
    results = source.get_data_info(index)
    for step in _steps(source):
        if type(step).__name__.startswith("Load"):
            results = step(results)
    return np.unique(results["gt_seg_map"]).tolist() if "gt_seg_map" in results else []


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
