"""Config files, and the command line's options applied to them: one path for mmdet, mmseg and mmpretrain configs.

This module imports neither PyTorch nor the OpenMMLab libraries, so that a mistake in a config is reported within a second.
"""

import argparse
import contextlib
import importlib
import io
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmengine.config import Config, ConfigDict, DictAction

from mmlisa import config_path
from mmlisa.errors import UserError

from .names import check_options, warn_of_names

if TYPE_CHECKING:
    from torch import nn

# Entries of loops, schedules and hooks that count epochs, or iterations where the training counts these.
_MOMENTS = ("val_begin", "begin", "end", "T_max", "step_size", "total_steps", "milestones", "periods")
_EPOCHS_OF_HOOKS = ("switch_epoch", "num_last_epochs", "distill_from", "begin_epoch")
_OPENMMLAB = ("mmdet", "mmseg", "mmpretrain")
# Optimizer wrappers, and their forms for mixed precision on GPUs and on CPUs, where MMEngine's refuses to run.
_AMP = {
    "OptimWrapper": ("AmpOptimWrapper", "mmlisa.Bf16OptimWrapper"),
    "AdaptiveClipOptimWrapper": ("mmlisa.AdaptiveClipAmpOptimWrapper", "mmlisa.AdaptiveClipBf16OptimWrapper"),
}


def type_name(cfg: Mapping[str, Any]) -> str:
    """Return the name of a config's ``type`` without its scope; new-style configs hold the class itself."""
    value = cfg.get("type")
    return value.__name__ if isinstance(value, type) else str(value).rpartition(".")[2]


def innermost_datasets(cfg: Config, split: str) -> list[ConfigDict]:
    """Return the data sets of a split without wrappers, all of a ``ConcatDataset``; none if there is no such loader."""
    loader = cfg.get(f"{split}_dataloader")
    wrapped = [loader.get("dataset")] if isinstance(loader, Mapping) else []
    found = []
    while wrapped:
        dataset = wrapped.pop(0)
        inner = dataset and (dataset.get("datasets") or [dataset.get("dataset")])
        if inner and isinstance(inner[0], Mapping):
            wrapped = [*inner, *wrapped]
        elif dataset:
            found.append(dataset)
    return found


def innermost_dataset(cfg: Config, split: str) -> ConfigDict:
    """Return the first data set of a split without wrappers; empty if there is no such loader."""
    return next(iter(innermost_datasets(cfg, split)), ConfigDict())


def find_metainfo(dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names in a data set's config, or in the files that it states instead, and else those of its type."""
    from mmengine.fileio import list_from_file
    from mmengine.registry import DATASETS

    dataset_type, classes = dataset["type"], dataset.get("classes")
    given = ({"classes": classes} if classes else {}) | (dataset.get("metainfo") or {})
    for key, value in given.items():
        if isinstance(value, str) and (path := Path(value).expanduser()).is_file():
            given[key] = list_from_file(path)
    if not isinstance(dataset_type, type):
        with DATASETS.switch_scope_and_registry(None) as registry:  # the default scope's
            dataset_type = registry.get(dataset_type)
    return {**dataset_type.METAINFO, **given}


def predicts_masks(model: Mapping[str, Any]) -> bool:
    """Return True if the config of a detector has a head for masks; RTMDet-Ins predicts them with the boxes."""
    heads = {**model, **model.get("roi_head", {})}
    if heads.get("mask_head") or heads.get("panoptic_head"):
        return True
    boxes = heads.get("bbox_head")
    return isinstance(boxes, Mapping) and "Ins" in type_name(boxes)


def find_test_pipeline(cfg: Config) -> list[ConfigDict]:
    """Return the steps that read a test image; a config without them is a UserError."""
    if pipeline := innermost_dataset(cfg, "test").get("pipeline"):
        return pipeline
    raise UserError(
        f"config '{cfg.filename}': no test_dataloader with a pipeline; add test_dataloader = val_dataloader"
    )


def parse_options(items: Sequence[str]) -> dict[str, Any]:
    """Parse the items ``KEY=VALUE`` of ``--cfg-options`` as MMEngine does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    return parser.parse_args(["--options", *items]).options if items else {}


def load_config(
    filename: str, *, options: dict[str, Any] | None = None, work_dir: str | None = None, launcher: str = "none"
) -> Config:
    """Read a config and apply the command line's options to it.

    ``filename`` may be a name for :func:`mmlisa.config_path`. Without ``work_dir``, the config's own counts, or
    ``work_dirs/<config's name>``.

    Raises:
        FileNotFoundError: no such config; the message names the closest ones.
        UserError: the config cannot be read; nothing reads the top-level name of an option.
    """
    path = Path(filename if Path(filename).is_file() else config_path(filename))
    try:
        cfg = Config.fromfile(path)
    except OSError:
        raise
    except Exception as error:  # anything that Python code or MMEngine raises
        hint = "mmlisa::" in path.read_text() and '; for mmlisa::NAME write __import__("mmlisa").config_path(NAME)'
        raise UserError(f"config '{path}' cannot be read: {type(error).__name__}: {error}{hint or ''}") from error
    warn_of_names(path, cfg, cfg.text)
    if note := check_options(options or {}, cfg):
        warnings.warn_explicit(note, UserWarning, str(path), 0)
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
    """Look for the annotation file and the image folders that the data sets of splits name, or raise FileNotFoundError.

    Data sets that generate their data and those of another storage are not checked.
    """
    named = [(split, dataset) for split in splits for dataset in innermost_datasets(cfg, split)]
    for split, dataset in named:
        if type_name(dataset).startswith("Demo") or dataset.get("backend_args"):
            continue
        folder, prefix = dataset.get("data_root") or "", dataset.get("data_prefix") or {}
        names = [dataset.get("ann_file"), *(prefix.values() if isinstance(prefix, Mapping) else [prefix])]
        for name in filter(None, names):
            if "://" not in f"{folder}{name}" and not (path := Path(folder, name)).exists():
                setting = f"{split}_dataloader.dataset.data_root='{folder}'"
                raise FileNotFoundError(
                    f"'{path}' does not exist: put the data there (docs/data.md), or change {setting}"
                )


def check_mixing(cfg: Config) -> None:
    """Refuse mmdet's Mosaic for a model of masks, which it leaves where they were."""
    dataset = (cfg.get("train_dataloader") or {}).get("dataset") or {}
    steps = set()
    while dataset:
        steps |= {type_name(step) for step in dataset.get("pipeline") or ()}
        dataset = dataset.get("dataset") or {}
    if "Mosaic" in steps and predicts_masks(cfg.model):
        raise UserError("train_pipeline: Mosaic does not move masks; take CachedMosaic")


def config_for_training(
    cfg: Config,
    *,
    pretrained: str | None = None,
    ema: bool | None = None,
    batch: int | None = None,
    epochs: int | None = None,
    iters: int | None = None,
    auto_scale_lr: bool = False,
    amp: bool = False,
    resume: bool | str = False,
) -> Config:
    """Return a copy of a config, as :func:`load_config` returns it, with the options of ``mmlisa train``.

    Raises:
        UserError: an option does not fit; the message names the setting.
        FileNotFoundError: there is no checkpoint to continue from.
    """
    cfg = deepcopy(cfg)
    if pretrained:
        _set_pretrained(cfg, pretrained, ema)
    if batch:
        cfg.train_dataloader.batch_size = batch
    if epochs or iters:
        _set_length(cfg, epochs, iters)
    if auto_scale_lr:
        cfg.merge_from_dict({"auto_scale_lr.enable": True})
    if resume is True:
        from mmlisa.checkpoints import latest_checkpoint

        if (resume := latest_checkpoint(cfg.work_dir)) is None:
            raise FileNotFoundError(f"--resume: '{cfg.work_dir}' has no checkpoint; train without --resume")
    if resume:
        cfg.resume, cfg.load_from = True, resume
    if amp:
        _set_mixed_precision(cfg)
    for part in _schedulers(cfg):
        begin, end = part.get("begin", 0), part.get("end")
        if end and end <= begin:
            remedy = "set the length by --epochs or --iters, which stretch the schedule"
            raise UserError(f"param_scheduler ({type_name(part)}) has begin={begin} and end={end}; {remedy}")
    return cfg


def published_weights(backbone: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry ``PublishedWeights`` of a backbone's ``init_cfg``, a dict or a list of dicts; empty if it has none."""
    init = backbone.get("init_cfg") or []
    entries = [init] if isinstance(init, Mapping) else init
    return next((dict(entry) for entry in entries if type_name(entry) == "PublishedWeights"), {})


def _set_pretrained(cfg: Config, source: str, ema: bool | None) -> None:
    if "pretrained_by" in cfg and "head" in cfg.model and not source.startswith("timm:"):
        # A classifier that fine-tunes another one loads all of it: its rate is too small for a new head.
        if cfg.get("load_from"):  # a video classifier's inflated weights
            raise UserError(f"--pretrained '{source}': this config starts from load_from='{cfg.load_from}'; set that")
        cfg.load_from = source
    else:
        own = published_weights(cfg.model.backbone)  # how the config's weights are loaded, such as resample_patches
        cfg.model.backbone.init_cfg = own | dict(type="mmlisa.PublishedWeights", source=source, ema=ema)


def _set_length(cfg: Config, epochs: int | None, iterations: int | None) -> None:
    """Set the length of the training, stretch the parts of the schedule to it, and remove those without time left."""
    loop, by_epoch = cfg.train_cfg, "max_epochs" in cfg.train_cfg
    key, option, length = ("max_epochs", "--epochs", epochs) if by_epoch else ("max_iters", "--iters", iterations)
    if not length:
        raise UserError(f"the config has train_cfg.{key}={loop[key]}: set the length by {option}")
    share = length / loop[key]
    loop[key] = length
    names = {*_MOMENTS, *(_EPOCHS_OF_HOOKS if by_epoch else ["begin_iter"])}
    schedule = _schedulers(cfg)
    for entry in [loop, *schedule, *(cfg.get("custom_hooks") or ())]:
        for name in names & entry.keys():
            value = entry[name]
            if isinstance(value, list | tuple):  # MMEngine applies a milestone of 0 at once
                entry[name] = [max(round(moment * share), 1) for moment in value]
            elif isinstance(value, int):
                entry[name] = max(round(value * share), min(value, 1))  # a short warm-up does not vanish
    if changes := loop.get("dynamic_intervals"):
        loop.dynamic_intervals = [(round(moment * share), interval) for moment, interval in changes]
    cfg.param_scheduler = [entry for entry in schedule if not entry.get("end") or entry.get("begin", 0) < entry["end"]]


def _schedulers(cfg: Config) -> list[ConfigDict]:
    schedule = cfg.get("param_scheduler") or []
    return [schedule] if isinstance(schedule, Mapping) else schedule


def warn_of_random_backbone(cfg: Config) -> str | None:
    """Return a warning if the config names a classifier to start from (``pretrained_by``), but no weights."""
    if "pretrained_by" not in cfg or cfg.model.backbone.get("init_cfg") or cfg.get("load_from") or cfg.get("resume"):
        return None
    part = "classifier" if "head" in cfg.model else "backbone"
    needed = f"this recipe is meant for those that {cfg.pretrained_by} makes: --pretrained CHECKPOINT"
    return f"the {part} starts from random weights; {needed}"


def averages_weights(cfg: Config) -> bool:
    """Return whether a hook of the config averages the weights, as MMEngine's EMAHook does after every iteration."""
    names = [type_name(hook) for hook in cfg.get("custom_hooks") or ()]
    return any("EMA" in name or name == "SelfDistillationHook" for name in names)


def warn_of_batch(cfg: Config, processes: int) -> str | None:
    """Return a warning if a step has another number of images than the learning rate is meant for, or averages several times."""
    meant, scaling = (cfg.get("auto_scale_lr", {}).get(key) for key in ("base_batch_size", "enable"))
    steps = cfg.optim_wrapper.get("accumulative_counts", 1)
    images = cfg.train_dataloader.batch_size * processes
    if steps > 1 and averages_weights(cfg):
        return (
            f"optim_wrapper.accumulative_counts={steps} averages the weights {steps} times a step; set --batch instead"
        )
    if not meant or (steps == 1 if scaling else images * steps == meant):
        return None
    if scaling:
        return "--auto-scale-lr ignores optim_wrapper.accumulative_counts, so the rate is too small; omit one of them"
    remedies = []
    if meant % processes == 0:
        remedies.append(f"--batch {meant // processes}")
    # Iterations that only add gradients count, too: to the length of a training, and for the averages.
    if meant % images == 0 and "max_epochs" in cfg.train_cfg and not averages_weights(cfg):
        remedies.append(f"--cfg-options optim_wrapper.accumulative_counts={meant // images}")
    remedies.append("--auto-scale-lr")
    return f"a step has {images * steps} images, the recipe's learning rate is for {meant}: {' or '.join(remedies)}"


def warn_of_schedule(cfg: Config, batches: int) -> str | None:
    """Return a warning if parts of the schedule end after the training, or count epochs in a loop of iterations.

    Args:
        batches: number of iterations per epoch.
    """
    loop, problems = cfg.train_cfg, []
    by_epoch = "max_epochs" in loop
    length = loop.max_epochs * batches if by_epoch else loop.max_iters
    for part in _schedulers(cfg):
        name, counts_epochs = type_name(part), part.get("by_epoch", True)
        if counts_epochs and not by_epoch:
            problems.append(f"{name} counts epochs, but the loop counts iterations: set by_epoch=False")
            continue
        moments = part.get("milestones") or [part.get("end") or part.get("T_max") or 0]
        unit = batches if counts_epochs else 1
        end = min(moments) * unit
        if end > length:
            verb = "begins to fall" if "milestones" in part else "ends"
            problems.append(f"{name} {verb} at iteration {end}, and the training ends at {length}")
    return f"param_scheduler: {'; '.join(problems)}" if problems else None


def _set_mixed_precision(cfg: Config) -> None:
    from mmengine.device import get_device

    wrapper, on_cpu = cfg.optim_wrapper, get_device() == "cpu"
    plain = type_name(wrapper).replace("Amp", "").replace("Bf16", "") if "type" in wrapper else "OptimWrapper"
    forms = _AMP.get(plain)
    if forms is None:
        raise UserError(f"--amp needs optim_wrapper.type 'OptimWrapper', but the config has {wrapper.type!r}")
    wrapper.type = forms[on_cpu]
    if on_cpu:
        for option in ("loss_scale", "dtype", "use_fsdp"):  # bfloat16 has the range of fp32 and needs no scale
            wrapper.pop(option, None)
    else:
        wrapper.setdefault("loss_scale", "dynamic")


def config_for_test(
    cfg: Config, checkpoint: str | None = None, *, show_dir: str | None = None, tta: bool = False
) -> Config:
    """Return a copy of a config, as :func:`load_config` returns it, that tests a checkpoint.

    :class:`mmlisa.visualization.OverlayHook` draws into ``show_dir``. ``tta`` without ``tta_model`` and ``tta_pipeline`` is a
    UserError.
    """
    cfg = deepcopy(cfg)
    cfg.load_from, cfg.resume = checkpoint, False
    cfg.default_hooks = cfg.get("default_hooks") or {}
    hook = cfg.default_hooks.pop("visualization", None)
    if show_dir is not None:
        if type_name(hook or {}) != "OverlayHook":
            hook = dict(type="mmlisa.OverlayHook")
        cfg.default_hooks.visualization = dict(hook, test_out_dir=str(Path(show_dir).resolve()))
    if tta:
        for key in ("tta_model", "tta_pipeline"):
            if key not in cfg:
                raise UserError(f"--tta: the config has no {key}, as those of UperNet have")
        innermost_dataset(cfg, "test").pipeline = cfg.tta_pipeline
        cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    return cfg


def import_quietly(*libraries: str | None) -> None:
    """Import the data sets of OpenMMLab's ``libraries``, by default of all installed ones, and hide what they print."""
    with contextlib.redirect_stdout(io.StringIO()):
        for library in libraries or _OPENMMLAB:
            if library in _OPENMMLAB and find_spec(library):
                importlib.import_module(f"{library}.datasets")


def build_model(cfg: Config) -> "nn.Module":
    """Build the model of a config, with the ``data_preprocessor`` beside it if it has none, as MMEngine's runner does."""
    from mmengine.registry import MODELS, init_default_scope

    init_default_scope(cfg.get("default_scope", "mmengine"))
    preprocessor = cfg.get("data_preprocessor")
    return MODELS.build(cfg.model, default_args=preprocessor and {"data_preprocessor": preprocessor})
