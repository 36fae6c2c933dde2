"""Checkpoints on disk: whole or not at all, one training per folder."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.runner import Runner

from mmlisa.checkpoints import writing_whole
from mmlisa.registry import HOOKS


class AtomicBackend(LocalBackend):
    """MMEngine's local files, written beside their place and then renamed: a reader never meets half a file."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        path = Path(filepath)
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing_whole(path) as file:
            file.write(obj)


register_backend("mmlisa.atomic", AtomicBackend, force=True)


class _LateRemoval:
    """A file backend that only notes what it is to remove."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.removed = backend, []

    def remove(self, path: str) -> None:
        self.removed.append(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """MMEngine's hook, whose failures lose nothing: files are written whole, and older ones are removed only after that.

    Args:
        on_failure: ``'stop'`` ends the training when a checkpoint cannot be written; ``'continue'`` logs it and goes on.
        **options: MMEngine's.

    Raises:
        OSError: under ``'stop'``, a checkpoint could not be written; names it and the last good one.
        ValueError: another ``on_failure``.
    """

    def __init__(self, *args: Any, on_failure: str = "stop", **options: Any) -> None:
        if on_failure not in ("stop", "continue"):
            raise ValueError(f"on_failure is {on_failure!r}; it must be 'stop' or 'continue'")
        if options.get("file_client_args") is None and "://" not in str(options.get("out_dir")):
            options["backend_args"] = options.get("backend_args") or {"backend": "mmlisa.atomic"}
        super().__init__(*args, **options)
        self.on_failure = on_failure

    def before_train(self, runner: Runner) -> None:
        super().before_train(runner)
        if is_main_process() and "://" not in self.out_dir:
            for partial in Path(self.out_dir).glob(".*.pth.*.partial"):  # of a process killed while it saved
                partial.unlink()

    def after_train_epoch(self, runner: Runner) -> None:
        with self._all_or_nothing(runner):
            super().after_train_epoch(runner)

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        with self._all_or_nothing(runner):
            super().after_train_iter(runner, *args, **kwargs)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        with self._all_or_nothing(runner):
            super().after_val_epoch(runner, metrics)

    @contextmanager
    def _all_or_nothing(self, runner: Runner) -> Iterator[None]:
        """Removes old files after the new one is whole; if it cannot be written, all is as before."""
        info = runner.message_hub.runtime_info
        state, info_before = dict(vars(self)), dict(info)
        if hasattr(self, "keep_ckpt_ids"):
            state["keep_ckpt_ids"] = deque(self.keep_ckpt_ids, self.keep_ckpt_ids.maxlen)
        backend = self.file_backend
        self.file_backend = late = _LateRemoval(backend)
        try:
            yield
        except OSError as error:
            vars(self).update(state)
            info.clear()
            info.update(info_before)
            last = info.get("last_ckpt")
            message = (
                f"the checkpoint of iteration {runner.iter + 1} could not be written to {self.out_dir}: "
                f"{error.strerror or error}. The last good one is {last or 'the one it started from, none was saved yet'}"
            )
            if self.on_failure == "stop":
                raise OSError(error.errno, message) from error
            runner.logger.error(f"{message}. Training goes on")
        else:
            self.file_backend = backend
            for path in late.removed:
                backend.remove(path)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Holds a training's folder against a second training.

    The lock is the system's, on ``.lock`` in the folder: it ends with the process, however that ends.

    Raises:
        BlockingIOError: another process trains there.
        OSError: the folder cannot be written.
    """
    if not _is_first_rank():
        yield
        return
    path = Path(folder) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise type(error)(
            error.errno, f"work dir {folder} cannot be written: {error.strerror}. --work-dir names another"
        ) from error
    with file:
        _lock(file, folder)
        yield


def _lock(file: Any, folder: str | Path) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        return
    try:
        # Of the process, not of the open file: worker processes that outlive a killed training must not hold it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        file.seek(0)
        raise BlockingIOError(
            error.errno,
            f"another training ({file.read().strip() or 'process unknown'}) writes into {folder}; wait for its end, or name "
            "another folder with --work-dir",
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
    file.flush()


def _is_first_rank() -> bool:
    """Whether this is rank 0, before anything is initialised: as the launchers say it."""
    names = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    return int(next((os.environ[name] for name in names if name in os.environ), 0)) == 0
