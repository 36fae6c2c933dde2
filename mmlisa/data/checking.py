"""Checks of a config's data for what would spoil a training."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from tqdm import tqdm

from mmlisa.errors import UserError
from mmlisa.training.config import innermost_datasets

from .dataset import UNKNOWN
from .folder import SPLITS, Facts, examine_image
from .likeness import find_copies

_SECONDS, _MOST_MAPS = 2.0, 50  # for a look at the class maps of all splits, and of a data set
_COCO = ("CocoDataset", "mmdet.CocoDataset")  # mmdet's, which drops annotations without a message
_PACKAGES = {"mmcv", "mmseg", "mmlisa"}  # whose steps keep the labels of class maps


@dataclass
class Checked:
    """What was read of the data of a split."""

    split: str
    size: int = 0  # samples
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # sentences on what was not looked at
    counts: Counter[str] = field(default_factory=Counter)  # objects, or images of a classification, of each class
    images: dict[str, Facts | None] = field(default_factory=dict)  # by path; None for videos and damaged images


def check_splits(cfg: Config, splits: Sequence[str] = SPLITS) -> Iterator[Checked]:
    """Read every annotation and every image of all data sets of a config, and yield the result for each split.

    The validation and the test need other images than the training.
    """
    init_default_scope(cfg.get("default_scope") or "mmengine")
    done: dict[str, list[Any]] = {}
    trained: dict[str, Facts | None] = {}
    for split in (name for name in SPLITS if name in splits):
        configs = innermost_datasets(cfg, split)
        if not configs or configs == done.get("val"):  # most configs test on the validation data
            continue
        checked = Checked(split)
        for config in configs:
            _check_dataset(config, checked)
            if any(_same_data(config, other) for other in done.get("train", ())):
                checked.problems.append(f"{split}_dataloader reads a data set of train_dataloader; it needs other data")
        if split == "train":
            trained = checked.images
        elif "train" in done:
            checked.problems += _find_shared(checked.images, trained)
        else:
            checked.unread.append("its images are not compared with those of train")
        done[split] = configs
        yield checked


def _same_data(config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two data sets differ in what they do with their samples only."""
    keys = (config.keys() | other.keys()) - {"pipeline", "filter_cfg", "test_mode"}
    return all(config.get(key) == other.get(key) for key in keys)


def _check_dataset(config: Mapping[str, Any], checked: Checked) -> None:
    """Add the size, the problems and the images of a data set to those of its split."""
    changes = {"filter_cfg": None} if "filter_cfg" in config else {}
    if config["type"] in _COCO:  # ours reports the annotations that mmdet drops
        changes["type"] = "mmlisa.CocoDataset"
    source = _build({**config, **changes})
    names = list(source.metainfo.get("classes") or ())
    number, unread = len(names), Counter()
    checked.counts.update(dict.fromkeys(names, 0))
    checked.problems += [f"{source.ann_file}: {problem}" for problem in getattr(source, "problems", ())]
    for index in tqdm(range(len(source)), "images", leave=False, disable=None):
        info = source.get_data_info(index)
        path, label = info.get("img_path"), info.get("gt_label")
        labels = [] if label is None else np.ravel(label).tolist()
        if wrong := [each for each in labels if number and not 0 <= each < number]:
            where = path or f"sample {index}"
            checked.problems.append(f"{where}: it has the label {wrong[0]}, but there are {number} classes")
        labels += [each.get("bbox_label", -1) for each in info.get("instances", ()) if not each.get("ignore_flag")]
        checked.counts.update(str(names[each]) for each in labels if 0 <= each < number)
        if path:
            checked.images[path] = None
        if not path or "num_frames" in info:  # CIFAR and MNIST hold the images themselves, and a video has many
            unread["samples are not image files: what they show was not read"] += 1
            continue
        try:
            facts = examine_image(Path(path), (info["width"], info["height"]) if "width" in info else None)
            checked.images[path] = facts
            if "reduce_zero_label" not in info:  # mmseg's
                is_judged = hasattr(source, "problems") or label is not None
                unread["samples have annotations that were not judged"] += not is_judged
            elif info.get("seg_map_path"):
                _check_map(info, facts.size, number)
        except (ValueError, OSError) as error:
            checked.problems.append(f"{path}: {error}")
    checked.size += len(source)
    checked.unread += [f"{count} {what} ({type(source).__name__})" for what, count in unread.items() if count]


def _find_shared(images: Mapping[str, Facts | None], trained: Mapping[str, Facts | None]) -> list[str]:
    """Return sentences about images that are in the training data, too: the same path, the same file, or saved again."""
    read = {path: facts for path, facts in images.items() if facts}
    copies = find_copies([*read.values()], [facts for facts in trained.values() if facts])
    shared = (images.keys() & trained.keys()) | {[*read][index] for index in copies}
    if len(shared) == len(images) > 1:
        return [f"all {len(images)} images are in the training data, the first {min(shared)}"]
    return [f"{path}: the same image is in the training data" for path in sorted(shared)]


def look_at_class_maps(cfg: Config) -> list[str]:
    """Compare some class maps of mmseg's training and validation data with the classes, within two seconds.

    The pipelines' own steps load them. Data sets with steps of other packages, which may change labels, are left out. The
    returned lines say how many maps were read.

    Raises:
        UserError: a map holds labels without a class, a data set has no image, or two data sets of one type differ in
            ``reduce_zero_label``.
    """
    if cfg.get("default_scope") != "mmseg":
        return []
    init_default_scope("mmseg")
    built = [(split, _build(config)) for split in ("train", "val") for config in innermost_datasets(cfg, split)]
    built = [(split, source) for split, source in built if hasattr(source, "reduce_zero_label")]  # mmseg's
    zeros = {source.reduce_zero_label: split for split, source in built}
    if len({type(source) for _, source in built}) == 1 and len(zeros) == 2:
        stated = ", ".join(
            f"{split}_dataloader.dataset has reduce_zero_label={value}" for value, split in zeros.items()
        )
        raise UserError(f"{stated}: a value of the class maps means another class in each; set all alike")
    notes = []
    for split, source in built:
        number, packages = len(source.metainfo.get("classes") or ()), {_package(step) for step in _steps(source)}
        if not number or packages - _PACKAGES:
            why = "steps of another package may change the labels" if number else "the data set names no classes"
            notes.append(f"the class maps of {split} were not judged: {why}")
            continue
        end = monotonic() + _SECONDS / len(built)
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


def look_at_splits(cfg: Config) -> list[str]:
    """Return warnings if the validation reads data of the training, and about annotations that a training does not judge."""
    lines, trained = [], innermost_datasets(cfg, "train")
    if any(_same_data(config, other) for config in innermost_datasets(cfg, "val") for other in trained):
        hint = "its results are those of images that the model has seen"
        lines.append(f"val_dataloader reads a data set of train_dataloader; {hint}")
    if any(config["type"] in _COCO for split in ("train", "val") for config in innermost_datasets(cfg, split)):
        judges = "mmlisa check-data CONFIG does, and type='mmlisa.CocoDataset' at each start"
        lines.append(f"the annotations of mmdet's CocoDataset were not judged; {judges}")
    return lines


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
