"""Files that are written completely or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, BinaryIO

import torch


@contextmanager
def atomic_path(path: str | Path, suffix: str = ".partial") -> Iterator[Path]:
    """Yield a temporary path beside ``path`` and rename it to ``path`` at the end; after an error the previous file stays.

    A missing parent folder is created. ``suffix`` ends the temporary name, for writers that choose their format by it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}{suffix}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
        raise


@contextmanager
def writing_whole(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for bytes that appears under ``path`` only when it is complete; see :func:`atomic_path`."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a whole file, or none."""
    with writing_whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def save_checkpoint(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Save a checkpoint, or raise OSError and leave the previous file."""
    with writing_whole(path) as file:
        torch.save(checkpoint, file)
