"""From a config file and command-line options to a runner: one path for mmdet, mmseg and mmpretrain configs."""

import argparse
import atexit
from collections.abc import Callable, Sequence
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict, DictAction
from mmengine.device import get_device
from mmengine.logging import print_log
from mmengine.model import is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmlisa import config_path
from mmlisa.checkpoints import latest_checkpoint, read_ahead, use_safe_loader

from .checks import check_channels, check_data, check_options, check_schedule, explain_unknown_type
from .interrupts import InterruptHook
from .log import QuietRunner, import_quietly
from .saving import locked

__all__ = [
    "build_runner",
    "check_data",
    "check_schedule",
    "load_config",
    "locked",
    "parse_options",
    "report",
    "set_amp",
    "set_auto_scale_lr",
    "set_resume",
    "set_show_dir",
    "set_tta",
    "train",
]

# Test-time augmentation where a config names none: the library's own model, and a horizontal flip. Per scope.
_TTA_MODELS = {
    "mmdet": dict(type="DetTTAModel", tta_cfg=dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=100)),
    "mmseg": dict(type="SegTTAModel"),
    "mmpretrain": dict(type="AverageClsScoreTTA"),
}


def parse_options(items: Sequence[str]) -> dict[str, Any]:
    """The values of ``--cfg-options``, ``KEY=VALUE`` each, as MMEngine reads them.

    Raises:
        ValueError: an item without ``=``, or with brackets that do not match.
    """
    for item in items:
        if "=" not in item or item.startswith("="):
            raise ValueError(f"--cfg-options {item!r} is not of the form KEY=VALUE")
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", nargs="+", action=DictAction)
    try:
        return parser.parse_args(["--options", *items]).options if items else {}
    except AssertionError as error:
        raise ValueError(f"--cfg-options: {error}") from error


def load_config(
    filename: str, *, options: dict[str, Any] | None = None, work_dir: str | None = None, launcher: str = "none"
) -> Config:
    """Reads a config, applies the command line's options and what the machine dictates.

    Args:
        filename: a file, or the name of a config that ships with mmlisa.
        options: new values by dotted key.
        work_dir: where logs and checkpoints go; None for the config's own, or ``work_dirs/<config's name>``.
        launcher: what started the processes.

    Raises:
        FileNotFoundError: no such config; the message names the closest ones.
        ValueError: the file is no valid config, or an option names what the config does not have.
    """
    path = _find_config(filename)
    try:
        cfg = Config.fromfile(path)
    except (SyntaxError, KeyError, TypeError, AttributeError, NameError) as error:
        raise ValueError(f"config {filename} cannot be read: {error}") from error
    if options:
        new = check_options(cfg, options)
        if new:
            print_log(f"--cfg-options: new in the config: {', '.join(new)}")
        cfg.merge_from_dict(options)
    cfg.launcher = launcher
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get("work_dir") is None:
        cfg.work_dir = str(Path("work_dirs") / path.stem)
    if launcher != "none" and not torch.cuda.is_available():
        cfg.model_wrapper_cfg = dict(
            type="MMDistributedDataParallel",
            device_ids=None,
            broadcast_buffers=False,
            find_unused_parameters=cfg.get("find_unused_parameters", False),
        )
    for name in ("train_dataloader", "val_dataloader", "test_dataloader"):
        loader = cfg.get(name)
        if loader is None:
            continue
        if not loader.get("num_workers"):
            loader.persistent_workers = False
        if cfg.get("default_scope") == "mmpretrain":
            loader.setdefault("collate_fn", dict(type="default_collate"))
    return cfg


def _find_config(filename: str) -> Path:
    path = Path(filename)
    if path.is_file():
        return path
    try:
        return Path(config_path(filename))
    except FileNotFoundError as error:
        names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = get_close_matches(path.name, names, n=3, cutoff=0.4)
        raise FileNotFoundError(
            f"config {filename} does not exist; in {path.parent}/ the closest are {near or 'none'}; {error}"
        ) from error


def set_auto_scale_lr(cfg: Config) -> None:
    """Scales the learning rate with the total batch size.

    Raises:
        ValueError: the config does not say for which batch size its rate is.
    """
    if "base_batch_size" not in cfg.get("auto_scale_lr", {}):
        raise ValueError("--auto-scale-lr: the config has no auto_scale_lr.base_batch_size")
    cfg.auto_scale_lr.enable = True


def set_amp(cfg: Config) -> None:
    """Trains under automatic mixed precision.

    Raises:
        ValueError: there is no GPU, or the config has an optimizer wrapper of its own.
    """
    wrapper = cfg.optim_wrapper
    if wrapper.get("type", "OptimWrapper") not in ("OptimWrapper", "AmpOptimWrapper"):
        raise ValueError(f"--amp needs optim_wrapper.type 'OptimWrapper', but the config has {wrapper.type!r}")
    if get_device() in ("cpu", "mps"):
        raise ValueError("--amp needs a GPU: MMEngine's AmpOptimWrapper does not train without one")
    wrapper.type = "AmpOptimWrapper"
    wrapper.setdefault("loss_scale", "dynamic")


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Continues from ``checkpoint``, or from the newest whole one of the work dir where None.

    Raises:
        FileNotFoundError: nothing to resume from.
        ValueError: ``checkpoint`` is damaged, unsafe, or not a local file.
    """
    if checkpoint and "://" in checkpoint:
        raise ValueError(
            f"--resume continues a training from a local file, not from {checkpoint}; to start from downloaded weights, "
            f"use --cfg-options load_from={checkpoint}"
        )
    source = checkpoint or latest_checkpoint(cfg.work_dir)
    if source is None:
        raise FileNotFoundError(
            f"--resume: {cfg.work_dir} has no checkpoint to continue from; name one, or train without it"
        )
    if checkpoint:
        read_ahead(checkpoint)
    cfg.resume, cfg.load_from = True, source


def set_tta(cfg: Config) -> None:
    """Tests with augmentation: the config's ``tta_model`` and ``tta_pipeline``, or the library's model and a flip.

    Raises:
        ValueError: the library has no such model for this config.
    """
    scope = cfg.get("default_scope")
    if "tta_model" not in cfg:
        heads = (
            cfg.model.get("roi_head", {}).get("mask_head"),
            cfg.model.get("mask_head"),
            cfg.model.get("panoptic_head"),
        )
        if scope == "mmdet" and any(heads):
            raise ValueError(
                "--tta: mmdet merges the boxes of augmented images, not their masks, and this model has masks"
            )
        if scope not in _TTA_MODELS:
            raise ValueError(f"--tta: the config has no tta_model, and there is no default for default_scope={scope!r}")
        cfg.tta_model = deepcopy(_TTA_MODELS[scope])
    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    if "tta_pipeline" not in cfg:
        *steps, pack = deepcopy(dataset.pipeline)
        if scope == "mmdet":  # the model undoes the flips, and mmdet does not say by default which there were
            keys = pack.get("meta_keys", ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor"))
            pack.meta_keys = (*dict.fromkeys((*keys, "flip", "flip_direction")),)
        flips = [dict(type="RandomFlip", prob=prob) for prob in (0.0, 1.0)]
        cfg.tta_pipeline = [*steps, dict(type="TestTimeAug", transforms=[flips, [pack]])]
    dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def set_show_dir(cfg: Config, directory: str | None) -> None:
    """Writes a picture of each test image's prediction into ``directory``, or none at all.

    A config that draws with its library's own hook gets :class:`mmlisa.visualization.OverlayHook`.
    """
    hook = cfg.default_hooks.pop("visualization", None)
    if directory is None:
        return
    if hook is None or not hook.type.endswith("OverlayHook"):
        hook = dict(type="mmlisa.OverlayHook")
    cfg.default_hooks.visualization = dict(hook, draw=True, test_out_dir=str(Path(directory).resolve()))


def _refuse_damaged_images(cfg: Config) -> None:
    """Evaluation stops at an image that cannot be read whole; the configs name the libraries' loader, which inferencers need."""
    for name in ("val_dataloader", "test_dataloader"):
        dataset = (cfg.get(name) or {}).get("dataset", {})
        while "dataset" in dataset:
            dataset = dataset.dataset
        for step in dataset.get("pipeline", [])[:1]:
            if step.get("type") == "LoadImageFromFile":
                step.type = "mmlisa.LoadImageFromFile"


def build_runner(cfg: Config, min_matched: float, *, same_shapes: bool = False, verbose: bool = True) -> Runner:
    """The runner of a config, with what mmlisa's tools add: checkpoints that are read safely and written whole, interrupts.

    Args:
        cfg: a whole config, as :func:`load_config` returns it.
        min_matched: share of the model's entries that a checkpoint must hold.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise that is a warning.
        verbose: whether the console shows all that MMEngine logs.

    Raises:
        ValueError: a ``type`` that does not exist, or a backbone that does not fit the neck.
    """
    use_safe_loader()
    if not verbose:
        import_quietly()
    if cfg.get("launcher") == "pytorch" and not torch.cuda.is_available() and not torch.distributed.is_initialized():
        # MMEngine's own initialisation, and its default wrapper of the model, require a GPU.
        torch.distributed.init_process_group("gloo")
        atexit.register(torch.distributed.destroy_process_group)  # its threads can abort a process that ends
    cfg.custom_hooks = [
        *cfg.get("custom_hooks", []),
        dict(type="mmlisa.DataCheckHook"),
        dict(type="mmlisa.CheckpointGuardHook", min_matched=min_matched, same_shapes=same_shapes),
        dict(type="mmlisa.InterruptHook"),
    ]
    _refuse_damaged_images(cfg)
    checkpoint = cfg.get("default_hooks", {}).get("checkpoint")
    if checkpoint is not None and checkpoint.get("type") == "CheckpointHook":
        checkpoint.type = "mmlisa.CheckpointHook"
    loop = cfg.get("train_cfg")
    if (
        loop is not None
        and loop.get("type", "EpochBasedTrainLoop") == "EpochBasedTrainLoop"
        and loop.get("by_epoch", True)
    ):
        loop.pop("by_epoch", None)
        loop.type = "mmlisa.EpochBasedTrainLoop"
    model = deepcopy(cfg.model)  # building takes the config apart
    try:
        default = Runner if verbose else QuietRunner
        runner = RUNNERS.build(cfg) if "runner_type" in cfg else default.from_cfg(cfg)
    except (KeyError, ValueError) as error:
        if (unknown := explain_unknown_type(error)) is None:
            raise
        raise unknown from error
    built = runner.model.module if is_model_wrapper(runner.model) else runner.model
    if isinstance(built, torch.nn.Module):
        check_channels(getattr(built, "module", built), model.get("module", model))
    return runner


def train(runner: Runner) -> None:
    """Trains; draws the curves however it ends.

    Raises:
        ChildProcessError: a process that loads data was killed.
    """
    try:
        runner.train()
    except RuntimeError as error:
        runner.call_hook("draw_curves")  # of TrainingCurvesHook
        if "DataLoader worker" not in str(error):
            raise
        for hook in runner.hooks:  # a scheduler's SIGTERM goes to the workers, too
            if isinstance(hook, InterruptHook) and hook.signal and not hook.busy:
                hook.stop(runner, runner.iter)
        last = runner.message_hub.runtime_info.get("last_ckpt")
        raise ChildProcessError(
            f"a process that loads data was killed ({str(error).splitlines()[0]}). Most often the memory is full: lower "
            "train_dataloader.num_workers, or the size of the shared memory is too small. "
            + (f"--resume continues from {last}" if last else "No checkpoint was saved yet")
        ) from error
    except (OSError, FloatingPointError):
        runner.call_hook("draw_curves")  # of TrainingCurvesHook
        raise


def report(runner: Runner, config: str, command: Callable[[str], str]) -> None:
    """Print where a finished training wrote its results, and what to type next.

    Args:
        runner: the runner after training.
        config: the config as the user named it.
        command: returns the start of a command line for the name of a tool.
    """
    if runner.rank != 0:
        return
    info = runner.message_hub.runtime_info
    checkpoint = info.get("best_ckpt") or info.get("last_ckpt")
    lines = [f"\nTrained for {runner.iter} iterations."]
    if checkpoint:
        score = f" (best: {info['best_score']:.4g})" if "best_ckpt" in info else ""
        lines.append(f"  checkpoint  {_shown(checkpoint)}{score}")
    curves, pictures = Path(runner.log_dir) / "curves.png", Path(runner.log_dir) / "vis_data" / "vis_image"
    lines += [f"  curves      {_shown(curves)}"] * curves.is_file()
    lines += [f"  pictures    {_shown(pictures)}/"] * pictures.is_dir()
    lines.append(f"  log         {_shown(runner.log_dir)}/")
    if checkpoint:
        lines += ["Next:", f"  {command('test')} {config} {_shown(checkpoint)}"]
        lines.append(f"  {command('infer')} {config} {_shown(checkpoint)} IMAGE …")
    print("\n".join(lines))


def _shown(path: str | Path) -> str:
    """A path relative to the current folder, where it lies in it."""
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
