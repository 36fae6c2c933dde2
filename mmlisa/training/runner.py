"""From a config to a runner, and a training with it."""

import logging
from copy import deepcopy
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.hooks import EMAHook
from mmengine.logging import MMLogger
from mmengine.model import is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmlisa.errors import UserError

from .checks import CheckpointGuardHook, FiniteLossHook, check_channels, check_classes, classes_of, compare_classes
from .config import import_quietly
from .saving import InterruptHook, ScheduleHook, locked

# The beginnings of log records hidden from the console.
_NOISE = (
    "\n------------------------------------------------------------\nSystem environment",
    "Config:\n",
    "Hooks will be executed in the following order",
    "Distributed training is not used, all SyncBatchNorm",
    "paramwise_options --",
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias',
    "Exp name:",
)


class QuietRunner(Runner):
    """MMEngine's runner with a console that shows progress, results and warnings only."""

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(lambda record: not record.getMessage().startswith(_NOISE))
        return logger


def build_runner(cfg: Config, min_matched: float, *, same_shapes: bool = False, verbose: bool = True) -> Runner:
    """Build the runner of a whole config with mmlisa's checks, its atomic checkpoints and its handling of signals.

    A backbone that does not fit the neck, and two hooks that average the weights, are UserErrors.

    Args:
        cfg: it is not changed.
        min_matched: share of the model's entries that a checkpoint must hold, unless ``custom_hooks`` has a
            :class:`CheckpointGuardHook`.
        same_shapes: for a test: refuse a checkpoint with any entry of another shape, or with less than ``min_matched`` whatever
            ``custom_hooks`` says. In a training, an entry of another shape keeps its initial values.
        verbose: print everything that MMEngine logs.
    """
    if not verbose:
        import_quietly(cfg.get("default_scope"))
    cfg = _prepare(cfg)
    default = Runner if verbose else QuietRunner
    runner = RUNNERS.build(cfg) if "runner_type" in cfg else default.from_cfg(cfg)
    if sum(isinstance(hook, EMAHook) for hook in runner.hooks) > 1:
        raise UserError("custom_hooks has two EMA hooks, which overwrite the weights at each validation; keep one")
    configured = set() if same_shapes else {type(hook) for hook in runner.hooks}
    for hook in (FiniteLossHook(), CheckpointGuardHook(min_matched, same_shapes), InterruptHook(), ScheduleHook()):
        if type(hook) not in configured:
            runner.register_hook(hook)
    built = runner.model.module if is_model_wrapper(runner.model) else runner.model
    check_channels(getattr(built, "module", built), _innermost_model(runner.cfg))
    return runner


def _prepare(cfg: Config) -> Config:
    """Return a copy of a config with atomic checkpoints, mmlisa's loop, and a model wrapper for processes on CPUs."""
    cfg = deepcopy(cfg)
    cfg.default_hooks = {"checkpoint": dict(type="CheckpointHook", interval=1), **(cfg.get("default_hooks") or {})}
    if (saving := cfg.default_hooks.checkpoint) and "://" not in str(saving.get("out_dir")):
        saving.setdefault("backend_args", dict(backend="mmlisa.atomic"))
    loop = cfg.get("train_cfg") or {}
    if "max_epochs" in loop and loop.get("type", "EpochBasedTrainLoop") == "EpochBasedTrainLoop":
        loop.pop("by_epoch", None)
        loop.type = "mmlisa.EpochBasedTrainLoop"
    if cfg.get("launcher") == "pytorch" and get_device() == "cpu":
        # MMEngine's own initialisation and its default model wrapper need GPUs.
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        default = dict(type="MMDistributedDataParallel", broadcast_buffers=False)
        cfg.model_wrapper_cfg = {**default, **(cfg.get("model_wrapper_cfg") or {}), "device_ids": None}
    return cfg


def _innermost_model(cfg: Config) -> dict[str, Any]:
    model = cfg.get("model") or {}  # maybe in a wrapper for test-time augmentation or tiles
    return model.get("module") or model.get("detector") or model


def _check_classes(runner: Runner, split: str) -> None:
    classes = classes_of(getattr(runner, f"{split}_dataloader"))
    if note := check_classes(_innermost_model(runner.cfg), classes, f"{split}_dataloader.dataset"):
        runner.logger.warning(note)


def test(runner: Runner) -> dict[str, float]:
    """Test, and return the metrics; a head with fewer classes than the data is a UserError (more are a warning)."""
    _check_classes(runner, "test")
    return runner.test()


def train(runner: Runner) -> None:
    """Train, and restore the handlers of signals.

    Raises:
        UserError: a head has fewer classes than the data, or training and validation differ in theirs.
        BlockingIOError: another training writes into the work dir.
        FloatingPointError: a loss is not finite.
    """
    _check_classes(runner, "train")
    if runner.val_loop is not None:
        _check_classes(runner, "val")
        if difference := compare_classes(*(classes_of(x) for x in (runner.train_dataloader, runner.val_dataloader))):
            raise UserError(f"val_dataloader.dataset: {difference}")
    with locked(runner.work_dir):
        try:
            runner.train()
        finally:
            for hook in runner.hooks:
                if isinstance(hook, InterruptHook):
                    hook.restore()
