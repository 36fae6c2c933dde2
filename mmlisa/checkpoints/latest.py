"""The newest whole checkpoint of a folder, read once: what finding it has read is what the runner loads."""

import os
from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from .reading import CheckpointError, MapLocation, load_checkpoint, move

_read_ahead: tuple[tuple, dict[str, Any]] | None = None


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest checkpoint of ``work_dir`` to resume from; one that is damaged is passed over, and the log says why."""
    paths = sorted(Path(work_dir).glob("*.pth"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths:
        try:
            checkpoint = read_ahead(path)
        except CheckpointError as error:
            print_log(f"passed over when resuming: {error}", logger="current", level=30)
            continue
        if "optimizer" in checkpoint:
            return str(path)
    return None


def read_ahead(path: str | Path) -> dict[str, Any]:
    """Reads and verifies a checkpoint, and keeps it for the load of the same file that follows.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: it is damaged or unsafe.
    """
    global _read_ahead
    _read_ahead = None
    checkpoint = load_checkpoint(path)
    _read_ahead = _identity(path), checkpoint
    return checkpoint


def take_read_ahead(path: str | Path, map_location: MapLocation) -> dict[str, Any] | None:
    """What :func:`read_ahead` keeps, once, if it is of this very file."""
    global _read_ahead
    kept, _read_ahead = _read_ahead, None
    if kept is None or not os.path.isfile(os.path.expanduser(path)) or kept[0] != _identity(path):
        return None
    return move(kept[1], map_location)


def _identity(path: str | Path) -> tuple:
    status = os.stat(os.path.expanduser(path))
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
