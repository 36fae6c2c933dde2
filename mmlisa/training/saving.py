"""Stopping and resuming: whole checkpoints, also at a signal; trainings that go on within an epoch, and with another schedule."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from filelock import FileLock, Timeout
from mmengine import runner as mmengine
from mmengine.dist import all_reduce, barrier, get_world_size, is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import EMAHook, Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from mmlisa.checkpoints import write_file
from mmlisa.errors import UserError
from mmlisa.registry import HOOKS, LOOPS

_ASKED_EVERY = 10  # iterations between two reductions of the flag over several processes
# The entries of a scheduler's state that are not settings.
_PROGRESS = {"last_step", "_global_step", "_last_value", "verbose"}


class AtomicBackend(LocalBackend):
    """MMEngine's local files, written atomically: a file gets a temporary name until it is complete."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_file(filepath, obj)


register_backend("mmlisa.atomic", AtomicBackend, force=True)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock the folder of a training and remove incomplete checkpoints; a second training there is a BlockingIOError.

    Of several processes, only the main one takes the lock. The operating system releases it when the process ends.
    """
    if not is_main_process():
        yield
        return
    try:
        lock = FileLock(Path(folder, ".lock")).acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(f"another training writes into '{folder}'; wait, or name another --work-dir") from None
    with lock:
        for partial in Path(folder).glob(".*.pth.*.partial"):  # left by a killed training
            partial.unlink()
        yield


@HOOKS.register_module()
class InterruptHook(Hook):
    """Save a checkpoint after the iteration in which SIGTERM or SIGINT arrived, and exit with 128 + signal.

    Several processes stop together, at most ten iterations later. ``--resume`` continues from the checkpoint. A second signal
    has Python's own effect.
    """

    priority = "LOWEST"  # after all other hooks of an iteration, such as the one that averages weights

    def __init__(self) -> None:
        self.number = 0  # the signal that arrived
        self._process, self._previous = os.getpid(), {}

    def before_train(self, runner: Runner) -> None:
        self._process = os.getpid()
        if threading.current_thread() is not threading.main_thread():
            runner.logger.info("signals are not handled: the training does not run in the main thread")
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Restore the handlers of the signals."""
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process:  # not a worker of a data loader, which inherited the handler
            self.number = number
            self.restore()
            os.write(2, b"A checkpoint is saved after this iteration or validation; a second signal ends at once\n")

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        by_epoch = isinstance(runner.train_loop, mmengine.EpochBasedTrainLoop)
        ends_epoch = by_epoch and batch_idx + 1 == len(runner.train_dataloader)  # after_train_epoch steps the schedule
        if not ends_epoch and (get_world_size() == 1 or (runner.iter + 1) % _ASKED_EVERY == 0):
            self._stop_if_asked(runner, f"iter_{runner.iter + 1}.pth", by_epoch=False)

    def after_train_epoch(self, runner: Runner) -> None:
        if isinstance(runner.train_loop, mmengine.EpochBasedTrainLoop):
            self._stop_if_asked(runner, f"epoch_{runner.epoch + 1}.pth", by_epoch=True)

    def _stop_if_asked(self, runner: Runner, name: str, by_epoch: bool) -> None:
        asked = torch.tensor(self.number)
        all_reduce(asked, "max")
        if not (number := int(asked)):
            return
        path = Path(runner.work_dir, name)
        runner.message_hub.update_info("last_ckpt", str(path))
        runner.save_checkpoint(runner.work_dir, name, by_epoch=by_epoch, backend_args=dict(backend="mmlisa.atomic"))
        if is_main_process():
            Path(runner.work_dir, "last_checkpoint").write_text(str(path))
        runner.logger.warning(f"interrupted: {path} is saved, --resume continues from it")
        barrier()  # a launcher ends the other processes as soon as one has exited
        sys.exit(128 + number)


@LOOPS.register_module()
class EpochBasedTrainLoop(mmengine.EpochBasedTrainLoop):
    """MMEngine's loop, which also resumes from a checkpoint saved in the middle of an epoch.

    The resumed epoch has the batches that were left of it. The order of the images comes from the seed of the checkpoint, which
    a training without a seed has, too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._first_seed = self.runner.seed  # a checkpoint that is resumed replaces it

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        length = len(self.dataloader)
        done = self._iter - self._epoch * length
        done = done if 0 <= done < length else 0  # the number of batches per epoch may have changed since
        sampler = self.dataloader.sampler
        if getattr(sampler, "seed", None) == self._first_seed:
            sampler.seed = self.runner.seed
        loader = without_first(self.dataloader, done) if done else self.dataloader
        for index, batch in enumerate(loader, done):
            self.run_iter(index, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1


def without_first(loader: DataLoader, count: int) -> DataLoader:
    """Return a loader of the same data without the first batches of an epoch, which are not read."""
    names = (
        "num_workers",
        "collate_fn",
        "pin_memory",
        "timeout",
        "worker_init_fn",
        "multiprocessing_context",
        "generator",
    )
    options = {name: getattr(loader, name) for name in (*names, "prefetch_factor")}
    return DataLoader(loader.dataset, batch_sampler=list(loader.batch_sampler)[count:], **options)


@HOOKS.register_module()
class ScheduleHook(Hook):
    """Resume a training with the schedule and the optimizer settings of the config.

    MMEngine restores the checkpoint's, so that a finished training that is resumed for longer keeps its last learning rate. This
    hook steps the schedulers of the config up to the iteration of the checkpoint, if they differ. Trainings with several
    optimizers are resumed as MMEngine does it, and so are schedulers that follow a metric.
    """

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if not (runner._resume and isinstance(runner.optim_wrapper, OptimWrapper)):
            return  # not a training, or one with several optimizers
        _note_averages(runner, checkpoint)
        meta = checkpoint["meta"]
        meta["iter"] = _count_iterations(runner, meta)
        new, old = _groups(runner.optim_wrapper.state_dict()), _groups(checkpoint["optimizer"])
        _check_optimizer(new, old)
        ours, saved = runner.param_schedulers or [], checkpoint.get("param_schedulers") or []
        states = [scheduler.state_dict() for scheduler in ours]
        follows_metric = any(getattr(each, "need_val_args", False) for each in ours)
        if _settings(states) == _settings(saved) or follows_metric:
            scheduled = {f"{start}{scheduler.param_name}" for scheduler in ours for start in ("", "initial_")}
            scheduled |= {"betas"} if "momentum" in scheduled else set()
        else:
            _step(ours, runner, meta["iter"])
            checkpoint["param_schedulers"] = [scheduler.state_dict() for scheduler in ours]
            new, scheduled = _groups(runner.optim_wrapper.state_dict()), set()
            rates = f"the learning rate is {new[0]['lr']:.3g}, not {old[0]['lr']:.3g}"
            runner.logger.warning(f"--resume: the schedule of the config replaces that of the checkpoint; {rates}")
        _take_settings(runner, new, old, scheduled | {"params"})


def _count_iterations(runner: Runner, meta: Mapping[str, Any]) -> int:
    """Return the iterations of a checkpoint in epochs of today's length: another number of processes changes it."""
    if not isinstance(runner.train_loop, mmengine.EpochBasedTrainLoop):
        return meta["iter"]
    length = len(runner.train_dataloader)
    since_epoch = meta["iter"] - meta["epoch"] * length
    return meta["epoch"] * length + (since_epoch if 0 <= since_epoch < length else 0)


def _step(schedulers: Sequence[Any], runner: Runner, iterations: int) -> None:
    """Step fresh schedulers up to an iteration."""
    length, by_epoch = len(runner.train_dataloader), isinstance(runner.train_loop, mmengine.EpochBasedTrainLoop)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `scheduler.step", UserWarning)  # before the optimizer's
        for done in range(1, iterations + 1):
            for scheduler in schedulers:
                if not scheduler.by_epoch or (by_epoch and done % length == 0):
                    scheduler.step()


def _take_settings(
    runner: Runner, new: Sequence[Mapping[str, Any]], old: Sequence[dict[str, Any]], kept: set[str]
) -> None:
    """Write the config's settings of the optimizer into the groups of a checkpoint, and name those that differ."""
    changes = {}
    for group, theirs in zip(new, old, strict=False):
        for name, value in group.items():
            if name in kept:
                continue
            if name in theirs and theirs[name] != value and name not in ("lr", "initial_lr"):
                changes.setdefault(name, f"{name}={value!r}, not {theirs[name]!r}")
            theirs[name] = value
    if changes:
        text = ", ".join(changes.values())
        runner.logger.warning(f"--resume: settings of the optimizer are the config's: {text}")


def _names_of_settings(group: Mapping[str, Any]) -> set[str]:
    """Return the names of the settings in an optimizer's group, without the first rates and LAMB's count of steps."""
    return {name for name in group if name != "step" and not name.startswith("initial_")}


def _check_optimizer(new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]) -> None:
    """Refuse the state of another optimizer, whose groups have other settings; AdamW is Adam with decoupled weight decay."""
    ours, theirs = _names_of_settings(new[0]), _names_of_settings(old[0])
    decoupled = [group.get("decoupled_weight_decay") for group in (new[0], old[0])]
    if ours == theirs and decoupled[0] == decoupled[1]:
        return
    own, other = sorted(ours - theirs), sorted(theirs - ours)
    difference = f"it has {other}, the config's has {own}" if own or other else "Adam and AdamW"
    remedy = "keep optim_wrapper.optimizer.type, or start from the weights with load_from"
    raise UserError(f"--resume: the checkpoint was trained with another optimizer ({difference}); {remedy}")


def _note_averages(runner: Runner, checkpoint: Mapping[str, Any]) -> None:
    averages = any(isinstance(hook, EMAHook) for hook in runner.hooks)
    if "ema_state_dict" in checkpoint and not averages:
        text = "the checkpoint's averaged weights become the weights, because the config has no EMAHook"
        runner.logger.warning(f"--resume: {text}")
    if averages and "ema_state_dict" not in checkpoint:
        runner.logger.warning("--resume: the checkpoint has no averaged weights; the average starts from its weights")


def _settings(states: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in state.items() if name not in _PROGRESS} for state in states]


def _groups(optimizer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parameter groups of an optimizer's state, and the settings that MMEngine keeps beside them."""
    return [*optimizer["param_groups"], *filter(None, [optimizer.get("base_param_settings")])]
