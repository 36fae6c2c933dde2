"""Checkpoints are written completely or not at all, also when a signal ends the training; a folder has one training at a time."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from filelock import FileLock, Timeout
from mmengine.dist import all_reduce, barrier, get_world_size, is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmlisa.checkpoints import writing_whole
from mmlisa.registry import HOOKS

_ASKED_EVERY = 10  # iterations between two reductions of the flag over several processes


class AtomicBackend(LocalBackend):
    """MMEngine's local files, written atomically: a file gets a temporary name until it is complete."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        with writing_whole(filepath) as file:
            file.write(obj)


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
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        ends_epoch = by_epoch and batch_idx + 1 == len(runner.train_dataloader)  # after_train_epoch steps the schedule
        if not ends_epoch and (get_world_size() == 1 or (runner.iter + 1) % _ASKED_EVERY == 0):
            self._stop_if_asked(runner, f"iter_{runner.iter + 1}.pth", by_epoch=False)

    def after_train_epoch(self, runner: Runner) -> None:
        if isinstance(runner.train_loop, EpochBasedTrainLoop):
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
