"""Atomic writing of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch

from .checksum import add_checksum


@contextmanager
def writing_whole(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` and rename it to ``path`` at the end; after an error the previous file stays.

    A missing folder is created.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def save_checkpoint(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Save a checkpoint with a checksum of its tensors, whole or not at all.

    Raises:
        OSError: the file cannot be written; the previous file stays.
    """
    add_checksum(checkpoint)
    with writing_whole(path) as file:
        torch.save(checkpoint, file)
