"""Checks of a config's schedule and data files before anything is built.

This module imports neither PyTorch nor the OpenMMLab libraries.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config


def type_name(part: Mapping[str, Any]) -> str:
    """The name of a config's ``type`` without its scope; new-style configs hold the class itself."""
    kind = part.get("type")
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def check_schedule(cfg: Mapping[str, Any]) -> str:
    """Compare the parts of ``param_scheduler`` with each other and with the length of the training.

    Returns:
        A warning if the training ends before its schedule; empty otherwise.

    Raises:
        ValueError: a part ends before it begins; the message names the options to change.
    """
    loop, parts = cfg.get("train_cfg") or {}, cfg.get("param_scheduler") or []
    parts = [parts] if isinstance(parts, Mapping) and "type" in parts else parts
    if not isinstance(parts, Sequence):  # one schedule per optimizer
        return ""
    by_epoch = "max_epochs" in loop
    length = loop.get("max_epochs" if by_epoch else "max_iters")
    longer = []
    for index, part in enumerate(parts):
        name, begin, end = f"param_scheduler.{index}", part.get("begin", 0), part.get("end")
        if end is None:
            continue
        if end <= begin:
            earlier = f"param_scheduler.{index - 1}.end and " if index and parts[index - 1].get("end") == begin else ""
            raise ValueError(
                f"{name} ({part.get('type')}) begins at {begin} and ends at {end}: set {name}.end above {begin}, or "
                f"{earlier}{name}.begin below {end}"
            )
        if length is not None and part.get("by_epoch", True) == by_epoch and end > length:
            longer.append(f"{name}.end={end}")
    if not longer:
        return ""
    unit = ("epoch" if by_epoch else "iteration") + "s" * (length != 1)
    return f"the training ends after {length} {unit}, but its learning-rate schedule ends later: {', '.join(longer)}"


def check_data(cfg: Config, *splits: str) -> None:
    """Check the files that the configs of ``train``, ``val`` or ``test`` name, and the top-k accuracy of their evaluators.

    Raises:
        FileNotFoundError: an annotation file or an image folder is missing; names the path and the setting that it comes from.
        ValueError: an evaluator measures top-k accuracy with fewer than k classes.
    """
    head = (cfg.get("model") or {}).get("head")
    for split in splits:
        loader, metrics = f"{split}_dataloader", dict(parts(f"{split}_evaluator", cfg.get(f"{split}_evaluator")))
        for setting, metric in metrics.items():
            _check_topk(setting, metric.get("topk"), head.get("num_classes") if isinstance(head, Mapping) else None)
        if cfg.get(loader) is None:
            continue
        datasets = dict(datasets_of(f"{loader}.dataset", cfg[loader].get("dataset")))
        if any(str(each.get("type")).startswith("mmlisa.Demo") for each in datasets.values()):
            continue  # these data sets generate their data and the evaluator's file
        for setting, dataset in datasets.items():
            _check_dataset(setting, dataset)
        for setting, metric in metrics.items():
            path = None if metric.get("backend_args") else metric.get("ann_file")
            if isinstance(path, str) and "://" not in path and not Path(path).exists():
                raise FileNotFoundError(
                    f"annotation file {path} of {setting}.ann_file does not exist. An evaluator's path is not relative to "
                    f"data_root: write the whole path, usually that of the file in {loader}.dataset"
                )


def parts(setting: str, value: Any) -> Iterator[tuple[str, Mapping]]:
    """The config at ``setting``, or each config of the list there, with its place; nothing if there is neither."""
    if isinstance(value, Mapping):
        yield setting, value
    elif isinstance(value, list | tuple):
        yield from ((f"{setting}.{index}", each) for index, each in enumerate(value) if isinstance(each, Mapping))


def _check_topk(setting: str, topk: Any, classes: Any) -> None:
    largest = max(topk, default=0) if isinstance(topk, Sequence) else topk
    if isinstance(classes, int) and isinstance(largest, int) and largest > classes:
        raise ValueError(
            f"{setting}.topk='{topk}' asks for the {largest} best of model.head.num_classes={classes} classes: set "
            f"{setting}.topk=1"
        )


def datasets_of(setting: str, dataset: Any) -> Iterator[tuple[str, Mapping]]:
    """The configs of the data sets inside of wrappers, each with its place in the config."""
    for place, each in parts(setting, dataset):
        yield place, each
        for key in ("dataset", "datasets"):
            yield from datasets_of(f"{place}.{key}", each.get(key))


def _check_dataset(setting: str, dataset: Mapping) -> None:
    if dataset.get("backend_args") or dataset.get("file_client_args"):  # the paths are of another storage
        return
    root_folder = dataset.get("data_root") or ""
    prefixes = dataset.get("data_prefix") or {}
    named = (
        {"data_prefix": prefixes} if isinstance(prefixes, str) else {f"data_prefix.{k}": v for k, v in prefixes.items()}
    )
    named = {"ann_file": dataset.get("ann_file"), **named}
    for key, value in named.items():
        if not isinstance(value, str) or not value or "://" in value or "://" in str(root_folder):
            continue
        path = Path(root_folder, value)
        if not path.exists():
            kind = "annotation file" if key == "ann_file" else "folder"
            missing = next(parent for parent in (path, *path.parents) if parent == Path(".") or parent.parent.exists())
            raise FileNotFoundError(
                f"{kind} {path} does not exist"
                + (f" ({missing} is missing)" if missing != path else "")
                + f": {setting}.{key}={value!r} under data_root={str(root_folder)!r}. Put the data there (docs/data.md), link "
                f"to them, or set {setting}.data_root"
            )
    # If none of these is set, the images are in the root itself. Some data sets of mmpretrain download theirs.
    downloads = dataset.get("download", type_name(dataset) in ("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"))
    is_root = root_folder and "://" not in str(root_folder) and not any(named.values())
    if is_root and not downloads and not Path(root_folder).exists():
        raise FileNotFoundError(f"folder {root_folder} does not exist: {setting}.data_root")
