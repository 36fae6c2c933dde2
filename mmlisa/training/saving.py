"""Atomic writing of checkpoints, and a lock that allows one training per folder."""

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Literal

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.logging import print_log
from mmengine.runner import Runner

from mmlisa.checkpoints import writing_whole
from mmlisa.options import rank
from mmlisa.registry import HOOKS

from .loops import VALIDATION_DUE, validation_follows


class AtomicBackend(LocalBackend):
    """MMEngine's local files, written atomically: a file gets a temporary name until it is complete."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        with writing_whole(filepath) as file:
            file.write(obj)


register_backend("mmlisa.atomic", AtomicBackend, force=True)


class _LateRemoval:
    """A file backend that collects the paths to remove instead of removing them, and finds files of one folder only.

    A training that was resumed into another folder still knows the best checkpoint of the run before, which must stay.
    """

    def __init__(self, backend: Any, folder: str) -> None:
        self.backend, self.folder, self.removed = backend, folder, []

    def isfile(self, path: str) -> bool:
        return os.path.dirname(path) == self.folder and self.backend.isfile(path)

    def isdir(self, path: str) -> bool:
        return os.path.dirname(path) == self.folder and self.backend.isdir(path)

    def remove(self, path: str) -> None:
        self.removed.append(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """MMEngine's hook with atomic writes. It removes older files only after the new one is complete.

    A checkpoint that is saved before a validation says so: a training that was killed in it validates when it is resumed.

    Args:
        on_failure: ``'stop'`` ends the training if a checkpoint cannot be written; ``'continue'`` logs the error and continues,
            except after the last iteration, whose result would be lost.
        **options: see :class:`mmengine.hooks.CheckpointHook`.

    Raises:
        OSError: a checkpoint cannot be written; with ``'continue'``, the last one. The message names it and the last good one.
    """

    def __init__(self, *args: Any, on_failure: Literal["stop", "continue"] = "stop", **options: Any) -> None:
        if options.get("file_client_args") is None and "://" not in str(options.get("out_dir")):
            options["backend_args"] = options.get("backend_args") or {"backend": "mmlisa.atomic"}
        super().__init__(*args, **options)
        self.on_failure = on_failure

    def before_train(self, runner: Runner) -> None:
        super().before_train(runner)
        if not is_main_process():
            return
        folders = {runner.work_dir} if "://" in self.out_dir else {runner.work_dir, self.out_dir}
        for folder in folders:  # an interrupt saves into the work dir
            for partial in Path(folder).glob(".*.pth.*.partial"):  # of a process killed while it saved
                partial.unlink()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        runner.message_hub.update_info(VALIDATION_DUE, False)
        super().after_val_epoch(runner, metrics)

    def _save_checkpoint(self, runner: Runner) -> None:
        runner.message_hub.update_info(VALIDATION_DUE, validation_follows(runner, ends_epoch=self.by_epoch))
        is_last = self.is_last_train_epoch(runner) if self.by_epoch else self.is_last_train_iter(runner)
        with self._all_or_nothing(runner, runner.iter + (not self.by_epoch), stop=is_last):
            super()._save_checkpoint(runner)

    def _save_best_checkpoint(self, runner: Runner, metrics: dict[str, float]) -> None:
        with self._all_or_nothing(runner, runner.iter):
            super()._save_best_checkpoint(runner, metrics)

    @contextmanager
    def _all_or_nothing(self, runner: Runner, iteration: int, stop: bool = False) -> Iterator[None]:
        """Remove old files after the new one is complete; if it cannot be written, restore the previous state."""
        info = runner.message_hub.runtime_info
        state = {name: copy(value) if isinstance(value, dict | deque) else value for name, value in vars(self).items()}
        info_before = dict(info)
        backend = self.file_backend
        self.file_backend = late = _LateRemoval(backend, self.out_dir)
        try:
            yield
        except OSError as error:
            vars(self).update(state)
            info.clear()
            info.update(info_before)
            last = info.get("last_ckpt")
            message = (
                f"the checkpoint of iteration {iteration} could not be written to {self.out_dir}: "
                f"{error.strerror or error}. {f'The last good one is {last}' if last else 'No checkpoint was saved yet'}"
            )
            if stop or self.on_failure == "stop":
                raise OSError(error.errno, message) from error
            runner.logger.error(f"{message}. The training continues")
        else:
            self.file_backend = backend
            new = {value for key, value in info.items() if key == "last_ckpt" or key.startswith("best_ckpt")}
            for path in late.removed:
                if path not in new:  # a new file may have the old one's name
                    backend.remove(path)


@contextmanager
def locked(folder: str | Path, launcher: str = "none") -> Iterator[None]:
    """Lock the folder of a training, so that a second training cannot write into it.

    The operating system holds the lock, on ``.lock`` in the folder, and releases it when the process ends for whatever reason.
    Only the first process of a launcher takes it.

    Raises:
        BlockingIOError: another process trains there.
        OSError: the folder cannot be written.
        ValueError: the launcher has not set the rank of this process.
    """
    if rank(launcher) != 0:
        yield
        return
    path = Path(folder) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise type(error)(
            error.errno, f"work dir '{folder}' cannot be written: {error.strerror}. Name another with --work-dir"
        ) from error
    with file:
        _lock(file, folder)
        yield


def _lock(file: Any, folder: str | Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        return
    try:
        # lockf's lock belongs to the process, not to the open file: workers that outlive a killed training do not hold it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        file.seek(0)
        raise BlockingIOError(
            error.errno,
            f"another training ({file.read().strip() or 'process unknown'}) writes into '{folder}'; wait until it ends, or "
            "name another folder with --work-dir",
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        print_log(
            f"the file system of '{folder}' has no locks: start no second training there", logger="current", level=30
        )
        return
    file.truncate(0)
    file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
    file.flush()
