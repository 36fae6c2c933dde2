"""The newest checkpoint of a folder."""

from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from .reading import CheckpointError, load_checkpoint, outline


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """Return the checkpoint of ``work_dir`` with the highest iteration that a training can resume from.

    The log names each checkpoint that is skipped, and a ``last_checkpoint`` that does not name a file of the folder.
    """
    found, folder = [], Path(work_dir)
    for path in folder.glob("*.pth"):
        if path.is_file():  # and not a folder, a pipe or a dangling link
            try:
                checkpoint = outline(path)
                if isinstance(checkpoint, dict) and "optimizer" in checkpoint:
                    found.append((_iteration(checkpoint, path), path.stat().st_mtime_ns, path))
            except CheckpointError as error:
                _warn(f"skipped when resuming: {error}")
    note = folder / "last_checkpoint"  # where MMEngine notes what it saved last
    if note.is_file():
        with note.open(errors="replace") as file:
            name = file.read(1000).strip()
        if Path(name).name not in {path.name for path in folder.iterdir()} or "://" in name:
            _warn(f"{note} names {name!r}, which is not a file of this folder; it is ignored")
    for _, _, path in sorted(found, reverse=True):
        try:
            load_checkpoint(path)
            return str(path)
        except CheckpointError as error:
            _warn(f"skipped when resuming: {error}")
    return None


def _iteration(checkpoint: dict[str, Any], path: Path) -> int:
    meta = checkpoint.get("meta")
    iteration = meta.get("iter") if isinstance(meta, dict) else None
    if type(iteration) is not int or iteration < 0:
        raise CheckpointError(f"checkpoint {path} cannot be resumed: meta['iter'] is {iteration!r:.80}, not a count")
    return iteration


def _warn(message: str) -> None:
    print_log(message, logger="current", level=30)
