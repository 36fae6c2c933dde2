"""Config files, and the command line's options applied to them: one path for mmdet, mmseg and mmpretrain configs.

This module imports neither PyTorch nor the OpenMMLab libraries, so that a mistake in a config is reported within a second.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict, DictAction

from mmlisa import config_path

# Entries of loops, schedules and hooks that count epochs, or iterations where the training counts these.
_MOMENTS = ("val_begin", "begin", "end", "T_max", "step_size", "total_steps", "milestones", "periods")
_EPOCHS_OF_HOOKS = ("switch_epoch", "num_last_epochs", "distill_from", "begin_epoch")
# Optimizer wrappers and their forms for mixed precision.
_AMP = {"OptimWrapper": "AmpOptimWrapper", "AdaptiveClipOptimWrapper": "mmlisa.AdaptiveClipAmpOptimWrapper"}


def type_name(part: Mapping[str, Any]) -> str:
    """Return the name of a config's ``type`` without its scope; new-style configs hold the class itself."""
    kind = part.get("type")
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def innermost_dataset(cfg: Config, split: str) -> ConfigDict:
    """Return the data set of a split without wrappers such as ``RepeatDataset``; empty if the config has no such loader.

    For a ``ConcatDataset``, it is the first data set.
    """
    loader = cfg.get(f"{split}_dataloader")
    dataset = (loader.get("dataset") if isinstance(loader, Mapping) else None) or ConfigDict()
    while isinstance(inner := dataset.get("dataset", (dataset.get("datasets") or [None])[0]), Mapping):
        dataset = inner
    return dataset


def find_metainfo(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a data set's config, where it has some, and else those of its type.

    The config may name a file with a name per line, and mmpretrain's data sets also have an option ``classes``.
    """
    from mmengine.fileio import list_from_file
    from mmengine.registry import DATASETS

    kind, classes = dataset["type"], dataset.get("classes")
    given = {**({"classes": classes} if classes else {}), **(dataset.get("metainfo") or {})}
    for key, value in given.items():
        if isinstance(value, str) and (path := Path(value).expanduser()).is_file():
            given[key] = list_from_file(path)
    if not isinstance(kind, type):
        with DATASETS.switch_scope_and_registry(None) as registry:  # the default scope's
            kind = registry.get(kind)
    return {**kind.METAINFO, **given}


def predicts_masks(model: Mapping[str, Any]) -> bool:
    """Return True if the config of a detector has a head for masks; RTMDet-Ins predicts them with the boxes."""
    heads = {**model, **model.get("roi_head", {})}
    if heads.get("mask_head") or heads.get("panoptic_head"):
        return True
    boxes = heads.get("bbox_head")
    return isinstance(boxes, Mapping) and "Ins" in type_name(boxes)


def find_test_pipeline(cfg: Config) -> list[ConfigDict]:
    """Return the steps that read a test image.

    Raises:
        ValueError: the config has no ``test_dataloader``, or one without a pipeline.
    """
    pipeline = innermost_dataset(cfg, "test").get("pipeline")
    if not pipeline:
        raise ValueError(
            f"config '{cfg.filename}' has no test_dataloader with a pipeline, which reads the images; add one, such as "
            "test_dataloader = val_dataloader"
        )
    return pipeline


def parse_options(items: Sequence[str]) -> dict[str, Any]:
    """Parse the items ``KEY=VALUE`` of ``--cfg-options`` as MMEngine does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    return parser.parse_args(["--options", *items]).options if items else {}


def load_config(
    filename: str, *, options: dict[str, Any] | None = None, work_dir: str | None = None, launcher: str = "none"
) -> Config:
    """Read a config and apply the command line's options to it.

    Args:
        filename: a file, or the name of a config that ships with mmlisa.
        options: new values by dotted key.
        work_dir: the folder of logs and checkpoints; None for the config's own, or ``work_dirs/<config's name>``.
        launcher: the program that started the processes.

    Raises:
        FileNotFoundError: no such config; the message names the closest ones.
    """
    path = Path(filename if Path(filename).is_file() else config_path(filename))
    cfg = Config.fromfile(path)
    cfg.merge_from_dict(options or {})
    cfg.launcher = launcher
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get("work_dir") is None:
        cfg.work_dir = str(Path("work_dirs") / path.stem)
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        loader = cfg.get(name)
        if not isinstance(loader, Mapping):
            continue
        if not loader.get("num_workers"):
            loader.persistent_workers = False  # PyTorch refuses it without workers
        if cfg.get("default_scope") == "mmpretrain":
            loader.setdefault("collate_fn", dict(type="default_collate"))
    return cfg


def check_data(cfg: Config, *splits: str) -> None:
    """Look for the annotation file and the image folders that the data set of ``train``, ``val`` or ``test`` names.

    Data sets that generate their data and those of another storage are not checked.

    Raises:
        FileNotFoundError: a file or folder is missing; the message names it and the setting to change.
    """
    for split in splits:
        dataset = innermost_dataset(cfg, split)
        if type_name(dataset).startswith("Demo") or dataset.get("backend_args"):
            continue
        folder, prefix = dataset.get("data_root") or "", dataset.get("data_prefix") or {}
        names = [dataset.get("ann_file"), *(prefix.values() if isinstance(prefix, Mapping) else [prefix])]
        for name in filter(None, names):
            if "://" not in f"{folder}{name}" and not (path := Path(folder, name)).exists():
                raise FileNotFoundError(
                    f"'{path}' does not exist: put the data there (docs/data.md), link to them, or set "
                    f"{split}_dataloader.dataset.data_root='{folder}' to their folder"
                )


def set_epochs(cfg: Config, epochs: int) -> None:
    """Set the length of the training, and stretch to it the parts of the schedule that are counted in the same unit.

    A training that counts iterations gets ``epochs`` times the images over the batch of all processes. Parts of the schedule for
    which no time is left are removed.
    """
    loop, by_epoch = cfg.train_cfg, "max_epochs" in cfg.train_cfg
    key, length = ("max_epochs", epochs) if by_epoch else ("max_iters", epochs * _iterations_per_epoch(cfg))
    share, loop[key] = length / loop[key], length
    names = {*_MOMENTS, *(_EPOCHS_OF_HOOKS if by_epoch else ["begin_iter"])}
    schedule = cfg.get("param_scheduler") or []
    schedule = [schedule] if isinstance(schedule, Mapping) else schedule
    counted = [part for part in schedule if part.get("by_epoch", True) == by_epoch]
    for part in [loop, *counted, *(cfg.get("custom_hooks") or ())]:
        for name in names & part.keys():
            value = part[name]
            if isinstance(value, list):
                part[name] = [round(moment * share) for moment in value]
            elif isinstance(value, int):
                part[name] = max(round(value * share), min(value, 1))  # a short warm-up does not vanish
    cfg.param_scheduler = [part for part in schedule if not part.get("end") or part.get("begin", 0) < part["end"]]


def _iterations_per_epoch(cfg: Config) -> int:
    from mmengine.registry import DATASETS, init_default_scope

    init_default_scope(cfg.get("default_scope", "mmengine"))
    images = len(DATASETS.build(deepcopy(cfg.train_dataloader.dataset)))
    processes = int(os.environ.get("WORLD_SIZE", 1)) if cfg.get("launcher", "none") != "none" else 1
    return -(-images // (cfg.train_dataloader.batch_size * processes))


def set_pretrained(cfg: Config, source: str) -> None:
    """Initialize the backbone from ``source``; see :class:`mmlisa.conversion.PublishedWeights`.

    A classifier that fine-tunes another one (``pretrained_by``) loads the whole checkpoint: its rate is too small for a new head.
    """
    if "pretrained_by" in cfg and "head" in cfg.model and not source.startswith("timm:"):
        cfg.load_from = source
    else:
        cfg.model.backbone.init_cfg = dict(type="mmlisa.PublishedWeights", source=source)


def warn_of_random_backbone(cfg: Config) -> str | None:
    """Return a warning if the config names a classifier to start from (``pretrained_by``), but no weights."""
    if "pretrained_by" not in cfg or cfg.model.backbone.get("init_cfg") or cfg.get("load_from") or cfg.get("resume"):
        return None
    return (
        f"the {'classifier' if 'head' in cfg.model else 'backbone'} starts from random weights; the paper's accuracy needs those "
        f"that {cfg.pretrained_by} makes: --pretrained CHECKPOINT"
    )


def warn_of_batch(cfg: Config, processes: int) -> str | None:
    """Return a warning if a step trains on another number of images than the learning rate is meant for."""
    meant, scaling = (cfg.get("auto_scale_lr", {}).get(key) for key in ("base_batch_size", "enable"))
    steps = cfg.optim_wrapper.get("accumulative_counts", 1)
    images = cfg.train_dataloader.batch_size * processes
    if not meant or (steps == 1 if scaling else images * steps == meant):
        return None
    if scaling:
        return (
            "--auto-scale-lr ignores optim_wrapper.accumulative_counts: the rate would be too small; omit one of them"
        )
    remedies = [f"--batch {meant // processes}"] * (meant % processes == 0)
    if meant % images == 0:
        remedies.append(f"--cfg-options optim_wrapper.accumulative_counts={meant // images}")
    remedies.append("--auto-scale-lr")
    return f"a step has {images * steps} images, the recipe's learning rate is for {meant}: {' or '.join(remedies)}"


def set_amp(cfg: Config) -> None:
    """Train with automatic mixed precision.

    Raises:
        ValueError: the config has an optimizer wrapper of another type.
    """
    wrapper = cfg.optim_wrapper
    kind = type_name(wrapper) if "type" in wrapper else "OptimWrapper"
    if kind in _AMP:
        wrapper.type = _AMP[kind]
    elif "Amp" not in kind:
        raise ValueError(f"--amp needs optim_wrapper.type 'OptimWrapper', but the config has {wrapper.type!r}")
    wrapper.setdefault("loss_scale", "dynamic")


def set_tta(cfg: Config) -> None:
    """Test with augmentation, by the config's ``tta_model`` and ``tta_pipeline``.

    Raises:
        ValueError: the config lacks one of them.
    """
    for key in ("tta_model", "tta_pipeline"):
        if key not in cfg:
            raise ValueError(f"--tta: the config has no {key}, as those of UperNet have")
    innermost_dataset(cfg, "test").pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def set_show_dir(cfg: Config, directory: str | None) -> None:
    """Write a picture of each test image's prediction into ``directory``, or no pictures.

    :class:`mmlisa.visualization.OverlayHook` replaces the drawing hooks of the libraries.
    """
    if not cfg.get("default_hooks"):
        cfg.default_hooks = {}
    hook = cfg.default_hooks.pop("visualization", None)
    if directory is None:
        return
    if hook is None or not type_name(hook).endswith("OverlayHook"):
        hook = dict(type="mmlisa.OverlayHook")
    cfg.default_hooks.visualization = dict(hook, draw=True, test_out_dir=str(Path(directory).resolve()))
