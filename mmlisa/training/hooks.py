"""Hooks that report progress and check the loss, the data and the checkpoint of a training."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import time
from typing import Any

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.hooks import EMAHook, Hook, LoggerHook
from mmengine.model import is_model_wrapper
from mmengine.optim import AmpOptimWrapper, ApexOptimWrapper, OptimWrapperDict
from mmengine.runner import Runner

from mmlisa.checkpoints import (
    CheckpointError,
    adapt_state_dict,
    add_checksum,
    check_share,
    check_values,
    match_report,
    state_dict_of,
)
from mmlisa.memory import peak_megabytes
from mmlisa.registry import HOOKS

from .checks import check_classes, check_first_image, check_shapes, compare_classes, shape_conflicts
from .config_checks import check_schedule
from .interrupts import largest_of_processes, optim_wrappers


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stops all processes at the first loss that is not finite, before a checkpoint of that iteration is written.

    So does the norm of the gradients that ``clip_grad`` measures: clipped, they would become 0 or NaN. Mixed precision skips such
    steps.

    Raises:
        FloatingPointError: the message names the iteration, the losses and the last good checkpoint.
    """

    priority = "VERY_HIGH"

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        losses = {
            name: float(torch.as_tensor(value).detach()) for name, value in (outputs or {}).items() if "loss" in name
        }
        norm = runner.message_hub.log_scalars.get("train/grad_norm")
        if norm and _measures_gradients(runner):
            losses["grad_norm"] = float(norm.current())
        broken = {name: value for name, value in losses.items() if not np.isfinite(value)}
        if largest_of_processes(int(bool(broken))):
            last = runner.message_hub.runtime_info.get("last_ckpt")
            found = ", ".join(f"{name} is {value}" for name, value in broken.items()) or "a loss of another process"
            raise FloatingPointError(
                f"iteration {runner.iter + 1}: {found} (all losses here: {losses}). Training stopped; "
                f"{f'the last good checkpoint is {last}' if last else 'no checkpoint was saved yet'}. Usual remedies are a lower "
                "learning rate, a longer warm-up, and optim_wrapper.clip_grad"
            )


def _measures_gradients(runner: Runner) -> bool:
    """Whether an infinite norm of the gradients is an error, and of this run: a resumed one also holds the last norm before."""
    wrappers = optim_wrappers(runner)
    mixed = any(isinstance(each, AmpOptimWrapper | ApexOptimWrapper) for each in wrappers)
    return not mixed and any(getattr(each, "clip_grad_kwargs", None) for each in wrappers)


@HOOKS.register_module()
class ProgressHook(Hook):
    """Logs the time of the first iteration, and at least ten times per epoch the loss and the memory in use.

    An interval of ``default_hooks.logger`` below a tenth of an epoch stays as it is. A training counted in iterations is one
    epoch. MMEngine logs the memory of a GPU. Without a GPU, this hook adds the largest memory of the process so far, in MiB.
    """

    priority = 55  # after the hook that measures the time, before the one that logs

    def __init__(self) -> None:
        self._first = True

    def before_train(self, runner: Runner) -> None:
        for hook in runner.hooks:
            if isinstance(hook, LoggerHook):
                hook.interval = min(hook.interval, max(runner.max_iters // runner.max_epochs // 10, 1))

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        if (megabytes := peak_megabytes()) and not torch.cuda.is_available():
            runner.message_hub.update_scalar("train/memory", megabytes)
        if self._first and "train/time" in runner.message_hub.log_scalars:  # written by default_hooks.timer
            self._first = False
            seconds = runner.message_hub.get_scalar("train/time").current()
            left = runner.max_iters - runner.iter - 1
            runner.logger.info(
                f"The first iteration took {seconds:.1f} s. At this pace, the other {left} take "
                f"{timedelta(seconds=round(seconds * left))}; the first is usually slower than the rest"
            )


@HOOKS.register_module()
class DataCheckHook(Hook):
    """Checks of a config that need the data.

    Raises:
        ValueError: a head has fewer classes than the data (more are a warning); training and validation differ in their classes.
        FileNotFoundError: the first image is missing.
    """

    priority = "VERY_HIGH"

    def before_train(self, runner: Runner) -> None:
        self._check(runner, "train")
        if runner.val_loop is not None:
            self._check(runner, "val")
            train, val = _classes(runner.train_dataloader), _classes(runner.val_dataloader)
            if difference := compare_classes(train, val):
                raise ValueError(f"val_dataloader.dataset: {difference}")
        if "max_epochs" in (runner.cfg.get("train_cfg") or {}):  # the length in iterations depends on the data
            note = check_schedule({**runner.cfg, "train_cfg": dict(max_iters=runner.max_iters)})
            if note:
                runner.logger.warning(note)

    def before_test(self, runner: Runner) -> None:
        self._check(runner, "test")

    @staticmethod
    def _check(runner: Runner, split: str) -> None:
        dataset, setting = getattr(runner, f"{split}_dataloader").dataset, f"{split}_dataloader.dataset"
        model = runner.cfg.get("model") or {}
        note = check_classes(model.get("module", model), _classes(getattr(runner, f"{split}_dataloader")), setting)
        if note:
            runner.logger.warning(note)
        check_first_image(dataset, setting)


def _classes(loader: Any) -> Sequence[str] | None:
    metainfo = getattr(loader.dataset, "metainfo", {})
    # MMDetection's ConcatDataset has a list if its data sets differ.
    return metainfo.get("classes") if isinstance(metainfo, Mapping) else None


@HOOKS.register_module()
class CheckpointGuardHook(Hook):
    """Reports how much of the model a loaded checkpoint holds, and refuses a checkpoint that does not fit.

    Args:
        min_matched: share of the model's entries that must match in name and shape, from 0 to 1.
        same_shapes: refuse a checkpoint with any entry of another shape; otherwise that is a warning, except when resuming.

    Raises:
        ValueError: the checkpoint holds less, entries of other shapes, or values that are not weights.
        CheckpointError: the checkpoint to resume from lacks the state of a training, or that state is invalid.
    """

    # Before the hooks that load averages from the weights.
    priority = "VERY_HIGH"

    def __init__(self, min_matched: float, same_shapes: bool = False) -> None:
        self.min_matched, self.same_shapes = min_matched, same_shapes

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        # Test-time augmentation wraps the trained model once more.
        model = model.module if hasattr(model, "tta_cfg") or type(model).__name__.endswith("TTAModel") else model
        filename = str(runner._load_from)
        if runner._resume:
            check_training_state(checkpoint, filename)
            _warn_of_schedule(runner, checkpoint)
            if "ema_state_dict" in checkpoint and not any(isinstance(hook, EMAHook) for hook in runner.hooks):
                runner.logger.warning(
                    f"{filename} holds averaged weights, but the config has no EMAHook: the training continues from the averages "
                    "instead of the weights that were trained"
                )
        # Adapted once; the runner loads the result.
        state = checkpoint["state_dict"] = adapt_state_dict(model, state_dict_of(checkpoint, filename))
        if self.same_shapes or runner._resume:
            check_shapes(model, checkpoint, filename)
        elif conflicts := shape_conflicts(model, checkpoint):
            runner.logger.warning(
                f"{filename} does not fill the whole model: {conflicts}. These entries keep their initial values"
            )
        check_share(*match_report(model, state), filename, self.min_matched)
        check_values(model.state_dict(), state, filename)


@HOOKS.register_module()
class ChecksumHook(Hook):
    """Gives saved checkpoints the time, and a checksum of their tensors that is verified whenever they are read.

    It also leaves out of them what the safe reader would refuse.
    """

    # After the hooks that change what is saved.
    priority = "LOWEST"

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        meta, hub = checkpoint.get("meta", {}), checkpoint.get("message_hub", {})
        for part, key in ((checkpoint, "param_schedulers"), (meta, "dataset_meta"), (hub, "runtime_info")):
            if key in part:
                part[key] = _readable(part[key])
        # MMEngine's meta['time'] is local, so that its order depends on time zones and summer time.
        meta["saved_at"] = time()
        add_checksum(checkpoint)


def _readable(value: Any) -> Any:
    """``value`` without functions, which OneCycleLR's state holds, and with plain dicts for MMEngine's."""
    if isinstance(value, list | tuple):
        return type(value)(map(_readable, value))
    if type(value) in (dict, OrderedDict, ConfigDict):
        return {key: _readable(each) for key, each in value.items() if not callable(each)}
    return value


def check_training_state(checkpoint: Mapping[str, Any], filename: str) -> None:
    """Check the entries of a checkpoint that MMEngine reads when it resumes a training.

    Raises:
        CheckpointError: the iteration, the optimizer or another entry is missing or of another type.
    """
    meta = checkpoint.get("meta")
    meta = meta if isinstance(meta, Mapping) else {}
    problems = [f"meta['{k}'] is {meta.get(k)!r}, not a count" for k in ("epoch", "iter") if not _is_count(meta.get(k))]
    if not isinstance(meta.get("seed"), int | None):
        problems.append(f"meta['seed'] is {meta['seed']!r}, not a number")
    kinds = {"optimizer": Mapping, "param_schedulers": list | Mapping | None, "message_hub": Mapping}
    for key, kind in kinds.items():
        if not isinstance(checkpoint.get(key), kind):
            problems.append(f"its entry '{key}' is {'missing' if checkpoint.get(key) is None else 'invalid'}")
    if problems:
        raise CheckpointError(
            f"checkpoint '{filename}' cannot be resumed: {problems[0]}. To start a new training from its weights, use "
            "--cfg-options load_from=… instead of --resume"
        )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _warn_of_schedule(runner: Runner, checkpoint: Mapping[str, Any]) -> None:
    """Warn if the learning rate or the end of its schedule differs from the checkpoint's, which MMEngine continues with."""
    if isinstance(runner.optim_wrapper, OptimWrapperDict):  # several optimizers
        return
    ours, theirs = (
        [group.get("initial_lr", group.get("lr")) for group in groups if isinstance(group, Mapping)]
        for groups in (runner.optim_wrapper.param_groups, checkpoint["optimizer"].get("param_groups") or ())
    )
    if ours and theirs and ours[0] != theirs[0]:
        runner.logger.warning(
            f"the resumed training continues with the learning rate {theirs[0]:g} of the checkpoint; the config's {ours[0]:g} "
            "is not used. To train with another rate, start from the weights: --cfg-options load_from=…"
        )
    schedulers, states = runner.param_schedulers or (), checkpoint.get("param_schedulers") or ()
    ours, theirs = [scheduler.end for scheduler in schedulers], [state.get("end") for state in states]
    if ours and not theirs:
        runner.logger.warning(
            "the checkpoint has no state of learning-rate schedulers; those of the config begin anew, at its learning rate"
        )
    elif ours and ours != theirs:
        runner.logger.warning(
            f"the resumed training continues with the learning-rate schedulers of the checkpoint, which end after {theirs}; "
            f"the config's ends {ours} are not used. To train longer, start from the weights: --cfg-options load_from=…"
        )
