"""Checks of a config before anything is built: its schedule, and the files of its data.

This module imports neither PyTorch nor the OpenMMLab libraries.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config


def check_schedule(cfg: Mapping[str, Any]) -> str:
    """Compares the parts of ``param_scheduler`` with each other and with the length of the training.

    Returns:
        What to know of a training that ends before its schedule does; empty if there is nothing.

    Raises:
        ValueError: a part ends before it begins; says which options change that.
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
    return f"the training ends after {length} {unit}, the schedule of its learning rate later: {', '.join(longer)}"


def check_data(cfg: Config, *splits: str) -> None:
    """Check the files that the configs of ``train``, ``val`` or ``test`` name, and the top-k accuracy of their evaluators.

    Raises:
        FileNotFoundError: an annotation file or an image folder is missing; names the path and the setting that it comes from.
        ValueError: an evaluator asks for the k best classes of fewer than k.
    """
    for split in splits:
        _check_topk(cfg, split)
        loader = cfg.get(f"{split}_dataloader")
        if loader is None:
            continue
        datasets = dict(_datasets(f"{split}_dataloader.dataset", loader.get("dataset")))
        if any(str(each.get("type")).startswith("mmlisa.Demo") for each in datasets.values()):
            continue  # they make their data, and the evaluator's file
        for setting, dataset in datasets.items():
            _check_dataset(setting, dataset)
        evaluator = cfg.get(f"{split}_evaluator")
        listed = isinstance(evaluator, Sequence)
        for index, metric in enumerate(evaluator if listed else [evaluator]):
            path = metric.get("ann_file") if isinstance(metric, Mapping) and not metric.get("backend_args") else None
            if isinstance(path, str) and "://" not in path and not Path(path).exists():
                raise FileNotFoundError(
                    f"annotation file {path} does not exist: {split}_evaluator{f'.{index}' if listed else ''}.ann_file. It is "
                    f"not under data_root: write the whole path, most often that of {split}_dataloader.dataset"
                )


def _check_topk(cfg: Mapping[str, Any], split: str) -> None:
    head = (cfg.get("model") or {}).get("head")
    classes = head.get("num_classes") if isinstance(head, Mapping) else None
    evaluator = cfg.get(f"{split}_evaluator")
    listed = isinstance(evaluator, Sequence)
    for index, metric in enumerate(evaluator if listed else [evaluator]):
        topk = metric.get("topk") if isinstance(metric, Mapping) else None
        largest = max(topk, default=0) if isinstance(topk, Sequence) else topk
        if isinstance(classes, int) and isinstance(largest, int) and largest > classes:
            setting = f"{split}_evaluator{f'.{index}' if listed else ''}.topk"
            raise ValueError(
                f"{setting}='{topk}' asks for the {largest} best of model.head.num_classes={classes} classes: set {setting}=1"
            )


def _datasets(setting: str, dataset: Any) -> Iterator[tuple[str, Mapping]]:
    """The configs of the data sets inside of wrappers, each with its place in the config."""
    if not isinstance(dataset, Mapping):
        return
    yield setting, dataset
    inner = dataset.get("dataset", dataset.get("datasets"))
    if isinstance(inner, Mapping):
        yield from _datasets(f"{setting}.dataset", inner)
    elif isinstance(inner, Sequence) and not isinstance(inner, str):
        for index, each in enumerate(inner):
            yield from _datasets(f"{setting}.datasets.{index}", each)


def _check_dataset(setting: str, dataset: Mapping) -> None:
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
    # Without any of these, the root itself holds the images.
    if not any(named.values()) and root_folder and "://" not in str(root_folder) and not Path(root_folder).exists():
        raise FileNotFoundError(f"folder {root_folder} does not exist: {setting}.data_root")
