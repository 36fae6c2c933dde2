"""SIGTERM, SIGHUP and Ctrl-C end a training with a checkpoint, and SIGKILL ends its loader workers, too."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size, is_main_process
from mmengine.hooks import CheckpointHook, EMAHook, Hook
from mmengine.optim import BaseOptimWrapper, OptimWrapper, OptimWrapperDict
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch.utils.data import DataLoader

from mmlisa.registry import HOOKS

from .loops import VALIDATION_DUE, validation_follows

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
_OURS = "mmlisa_interrupt_checkpoint"  # in the message hub: the last one that the hook has saved
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_ASKED_EVERY = 10  # batches of a validation, after which several processes ask each other for a signal


@cache  # once per process
def end_workers_with_process() -> None:
    """Make Linux end the forked processes of this one when it ends, however it ends.

    PyTorch's loader workers notice that their parent was killed, but may then wait for ever for a reader of their queue.
    """
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        os.register_at_fork(after_in_child=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))


def leave_group(init: Callable[[int], None] | None, worker: int) -> None:
    """Start a worker of a data loader, whose own function for this is ``init``, in a process group of its own.

    torchrun and terminals send a signal to the whole group of a training, which needs its workers until it has stopped. Only
    Linux ends them with their process, however it ends; on other systems they stay in its group.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker may be spawned instead of forked
        os.setpgid(0, 0)
    if init is not None:
        init(worker)


def largest_of_processes(number: int) -> int:
    """Return the largest ``number`` of all processes, each of which must call this."""
    largest = torch.tensor(number)
    all_reduce(largest, "max")
    return int(largest)


def optim_wrappers(runner: Runner) -> list[BaseOptimWrapper]:
    """Return the wrappers of all optimizers of a training, which are often one."""
    wrapper = runner.optim_wrapper
    return list(wrapper.values()) if isinstance(wrapper, OptimWrapperDict) else [wrapper]


def gradients_wait(runner: Runner) -> bool:
    """Whether an optimizer accumulates gradients and has not used those of the last iteration, which no checkpoint holds."""
    return any(isinstance(each, OptimWrapper) and not each.should_update() for each in optim_wrappers(runner))


class Signals:
    """The signals that ask this process to end: SIGTERM, SIGINT (Ctrl-C) and SIGHUP (its terminal was closed).

    While they are caught, the first one is noted. One that comes more than a second later exits at once; before that, it may
    be the same signal, sent to the process by a launcher and to the process group by the system.
    """

    def __init__(self) -> None:
        self.number = 0  # of the signal that this process, or another one of the training, has got
        self.busy = False  # until the weights can be saved: the end of a loader worker raises no error
        self._process = os.getpid()
        self._first: float | None = None  # time of this process's first signal
        self._replaced: dict[int, Any] = {}  # handlers

    def catch(self) -> None:
        """Note signals from now on. Only the main thread can; in another one this does nothing.

        Shells make background jobs ignore SIGINT, and ``nohup`` makes them ignore SIGHUP. Ignored signals stay ignored.
        """
        self.restore()  # an earlier training of this runner may have failed
        with suppress(ValueError):
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._replaced[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Handle signals as before :meth:`catch`, and forget those that came."""
        for number, handler in self._replaced.items():
            signal.signal(number, handler)
        self._replaced.clear()
        self.number, self.busy, self._first = 0, False, None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker of a data loader, which inherited the handlers
            return
        now = monotonic()
        if self._first is not None:
            if now - self._first > 1:
                os._exit(128 + number)
            return
        self.number, self._first = number, now
        if hasattr(signal, "SIGCHLD"):  # some launchers send a signal to the loader workers, too
            self._replaced[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, self._on_end_of_child)
        name, later = signal.Signals(number).name, "a second signal, after more than a second, exits at once"
        # The reader of stderr may have ended. Python's own sys.stderr fails in a handler that interrupts one of its writes.
        with suppress(OSError):
            os.write(2, f"{name}: a checkpoint is saved after this iteration; {later}\n".encode())

    def _on_end_of_child(self, number: int, frame: FrameType | None) -> None:
        handler = self._replaced[number]  # PyTorch's, which raises an error if a loader worker was killed
        if callable(handler) and not self.busy:
            handler(number, frame)


@HOOKS.register_module()
class InterruptHook(Hook):
    """On SIGTERM, SIGINT or SIGHUP, saves a checkpoint after the current iteration and draws the curves.

    The process exits with 143, 130 or 129, the status that a shell reports for a process that the signal ended. ``--resume``
    continues from the checkpoint. A second signal, more than a second later, exits at once.

    If one of several processes gets the signal, all of them stop after the same iteration. If gradients are accumulated, this
    is the one of the optimizer's next step. In a validation a single process stops after the current batch. Several processes
    stop after the same batch, a tenth one, or at the end.
    """

    # After all other hooks of an iteration, and after the EMA hook has exchanged the weights.
    priority = "LOWEST"

    def __init__(self) -> None:
        self.signals = Signals()
        self.validating = False  # the model may hold averaged weights
        self._saving: int | None = None  # iterations of the checkpoint that stop() saves
        self._common = 0  # batches of the validation that all processes have

    def before_train(self, runner: Runner) -> None:
        self.signals.catch()
        for loader in (runner.train_dataloader, runner.val_loop and runner.val_dataloader):
            if isinstance(loader, DataLoader):
                loader.worker_init_fn = partial(leave_group, loader.worker_init_fn)
        if runner.val_loop is not None and runner.message_hub.get_info(VALIDATION_DUE):
            runner.message_hub.update_info(VALIDATION_DUE, False)
            runner.val_loop.run()

    def before_train_epoch(self, runner: Runner) -> None:
        self.signals.busy = False

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self.signals.busy = True

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        if self._requested(runner):
            self.stop(runner, runner.iter + 1)
        # The loop counts an epoch after the hooks of its end, which step schedulers and save.
        epochs = isinstance(runner.train_loop, EpochBasedTrainLoop)
        self.signals.busy = epochs and batch_idx + 1 == len(runner.train_dataloader)

    def before_val(self, runner: Runner) -> None:
        self.signals.busy = True  # before_val_epoch of the EMA hook exchanges the weights

    def before_val_epoch(self, runner: Runner) -> None:
        self.validating = True
        # mmpretrain's hook exchanges the weights in the middle and validates both.
        self.signals.busy = any(getattr(hook, "evaluate_on_origin", False) for hook in runner.hooks)
        self._common = -largest_of_processes(-len(runner.val_dataloader))

    def after_val_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any | None = None
    ) -> None:
        asks = get_world_size() == 1 or (batch_idx < self._common and (batch_idx + 1) % _ASKED_EVERY == 0)
        if asks and not self.signals.busy and self._requested(runner):
            self.stop(runner, runner.iter)
        if batch_idx + 1 == len(runner.val_dataloader):
            self.signals.busy = True  # the EMA hook exchanges the weights again before after_val_epoch of this hook

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self.validating = self.signals.busy = False
        if self._requested(runner):
            self.stop(runner, runner.iter)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if self._saving is not None:
            checkpoint["meta"]["iter"] = self._saving  # in a validation, the runners count one iteration too many

    def after_train(self, runner: Runner) -> None:
        self.signals.restore()

    def _requested(self, runner: Runner) -> bool:
        number = largest_of_processes(self.signals.number)
        # With 0, nothing is set: a signal may have come while this process waited for the others. They learn of it the next time.
        if number:
            self.signals.number = number
        return number != 0 and not gradients_wait(runner)

    def stop(self, runner: Runner, iteration: int) -> None:
        """Save the state after ``iteration`` iterations and end the process."""
        self.signals.busy = True
        if self.validating:
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):
                    hook.after_val_epoch(runner)  # exchanges the averaged weights for the trained ones
        path = self._save(runner, iteration)
        runner.call_hook("draw_curves")  # of TrainingCurvesHook
        runner.logger.warning(f"interrupted after iteration {iteration}: {path} is saved, --resume continues from it")
        status = 128 + self.signals.number
        self.signals.restore()
        sys.exit(status)

    def _save(self, runner: Runner, iteration: int) -> Path:
        path, hub = Path(runner.work_dir) / f"iter_{iteration}.pth", runner.message_hub
        earlier = Path(hub.get_info(_OURS, path))
        if hub.get_info("last_ckpt") != str(path):  # otherwise it is the schedule's, which also removes it
            hub.update_info(_OURS, str(path))
        hub.update_info("last_ckpt", str(path))
        due = iteration > runner.iter and validation_follows(runner, ends_epoch=False)
        hub.update_info(VALIDATION_DUE, self.validating or due)
        # The file of the schedule, if there is one, lacks the note above and perhaps the optimizer.
        self._saving = iteration
        runner.save_checkpoint(str(path.parent), path.name, by_epoch=False, backend_args={"backend": "mmlisa.atomic"})
        self._saving = None
        if is_main_process():
            (path.parent / "last_checkpoint").write_text(str(path))
            few = any(hook.max_keep_ckpts > 0 for hook in runner.hooks if isinstance(hook, CheckpointHook))
            if few and earlier != path and earlier.parent == path.parent and earlier.is_file():
                earlier.unlink()
        return path
