"""From a config to a runner, and a training with it."""

from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmlisa.checkpoints import latest_checkpoint

from .checks import check_channels, check_classes, compare_classes
from .config import type_name
from .hooks import classes_of
from .interrupts import InterruptHook
from .log import QuietRunner, import_quietly
from .saving import locked


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Continue from ``checkpoint``, or from the newest readable checkpoint of the work dir if it is None.

    Raises:
        FileNotFoundError: there is no checkpoint to continue from.
    """
    source = checkpoint or latest_checkpoint(cfg.work_dir)
    if source is None:
        raise FileNotFoundError(
            f"--resume: '{cfg.work_dir}' has no checkpoint to continue from; name a checkpoint, or train without --resume"
        )
    cfg.resume, cfg.load_from = True, source


def build_runner(cfg: Config, min_matched: float, *, same_shapes: bool = False, verbose: bool = True) -> Runner:
    """Build the runner of a config, with mmlisa's checks, its atomic checkpoints and its handling of signals.

    Args:
        cfg: a whole config, as :func:`mmlisa.training.config.load_config` returns it.
        min_matched: share of the model's entries that a checkpoint must hold.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise such an entry keeps its initial values.
        verbose: print everything that MMEngine logs.

    Raises:
        ValueError: the backbone does not fit the neck.
    """
    if not verbose:
        import_quietly(cfg.get("default_scope"))
    _prepare_cpu_processes(cfg)
    ours = [
        dict(type="mmlisa.FiniteLossHook"),  # shipped configs name it for the libraries' tools
        dict(type="mmlisa.CheckpointGuardHook", min_matched=min_matched, same_shapes=same_shapes),
        dict(type="mmlisa.InterruptHook"),
    ]
    # The dumped config of an earlier training already holds these hooks.
    others = [
        hook for hook in cfg.get("custom_hooks") or () if f"mmlisa.{type_name(hook)}" not in {h["type"] for h in ours}
    ]
    cfg.custom_hooks = [*others, *ours]
    cfg.default_hooks = {"checkpoint": dict(type="CheckpointHook", interval=1), **(cfg.get("default_hooks") or {})}
    if (saving := cfg.default_hooks.checkpoint) and "://" not in str(saving.get("out_dir")):
        saving.setdefault("backend_args", dict(backend="mmlisa.atomic"))
    loop = cfg.get("train_cfg") or {}
    if "max_epochs" in loop and loop.get("type", "EpochBasedTrainLoop") == "EpochBasedTrainLoop":
        loop.pop("by_epoch", None)
        loop.type = "mmlisa.EpochBasedTrainLoop"
    default = Runner if verbose else QuietRunner
    runner = RUNNERS.build(cfg) if "runner_type" in cfg else default.from_cfg(cfg)
    built = runner.model.module if is_model_wrapper(runner.model) else runner.model
    check_channels(getattr(built, "module", built), _innermost_model(runner.cfg))
    return runner


def _prepare_cpu_processes(cfg: Config) -> None:
    """Set up several processes on CPUs; MMEngine's own initialisation and its default model wrapper need GPUs."""
    if cfg.get("launcher", "none") == "none" or get_device() != "cpu":
        return
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    default = dict(
        type="MMDistributedDataParallel",
        broadcast_buffers=False,
        find_unused_parameters=cfg.get("find_unused_parameters", False),
    )
    cfg.model_wrapper_cfg = {**default, **(cfg.get("model_wrapper_cfg") or {}), "device_ids": None}


def _innermost_model(cfg: Config) -> dict[str, Any]:
    """Return the config of the model without a wrapper for test-time augmentation or tiles."""
    model = cfg.get("model") or {}
    return model.get("module") or model.get("detector") or model


def _check_classes(runner: Runner, split: str) -> None:
    classes = classes_of(getattr(runner, f"{split}_dataloader"))
    if note := check_classes(_innermost_model(runner.cfg), classes, f"{split}_dataloader.dataset"):
        runner.logger.warning(note)


def test(runner: Runner) -> dict[str, float]:
    """Test, and return the metrics.

    Raises:
        ValueError: a head has fewer classes than the data (more are a warning).
    """
    _check_classes(runner, "test")
    return runner.test()


def train(runner: Runner) -> None:
    """Train, and restore the handlers of signals.

    Raises:
        ValueError: a head has fewer classes than the data (more are a warning), or training and validation differ in theirs.
        BlockingIOError: another training writes into the work dir.
        FloatingPointError: a loss is not finite.
    """
    _check_classes(runner, "train")
    if runner.val_loop is not None:
        _check_classes(runner, "val")
        if difference := compare_classes(*(classes_of(x) for x in (runner.train_dataloader, runner.val_dataloader))):
            raise ValueError(f"val_dataloader.dataset: {difference}")
    with locked(runner.work_dir):
        try:
            runner.train()
        finally:
            for hook in runner.hooks:
                if isinstance(hook, InterruptHook):
                    hook.restore()
