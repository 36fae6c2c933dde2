"""Atomic writing of checkpoints, and a lock that allows one training per folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend

from mmlisa.checkpoints import writing_whole


class AtomicBackend(LocalBackend):
    """MMEngine's local files, written atomically: a file gets a temporary name until it is complete."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        with writing_whole(filepath) as file:
            file.write(obj)


register_backend("mmlisa.atomic", AtomicBackend, force=True)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock the folder of a training, so that a second training cannot write into it, and remove incomplete checkpoints.

    Of several processes, only the main one takes the lock. The operating system releases it when the process ends.

    Raises:
        BlockingIOError: another process trains there.
    """
    if not is_main_process():
        yield
        return
    try:
        lock = FileLock(Path(folder, ".lock")).acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(
            f"another training writes into '{folder}'; wait until it ends, or name another --work-dir"
        ) from None
    with lock:
        for partial in Path(folder).glob(".*.pth.*.partial"):  # left by a killed training
            partial.unlink()
        yield
