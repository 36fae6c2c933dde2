"""The newest checkpoint of a folder."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from .loading import state_dict_of
from .reading import CheckpointError, load_checkpoint, outline


def latest_checkpoint(work_dir: str | Path, *others: str | Path) -> str | None:
    """Return the checkpoint of ``work_dir`` and ``others`` that was saved last and that a training can resume from.

    Checkpoints hold when they were saved; the iteration decides between equal times. A copy of a file is as old as the
    original. The log names each checkpoint that is skipped, and a ``last_checkpoint`` that does not name a file of the folders.
    """
    found, folder, folders = [], Path(work_dir), [Path(each) for each in (work_dir, *others)]
    for path in (path for each in folders for path in each.glob("*.pth")):
        if path.is_file():  # and not a folder, a pipe or a dangling link
            try:
                checkpoint = outline(path)
                if isinstance(checkpoint, dict) and "optimizer" in checkpoint:
                    found.append((*_saved(checkpoint, path), path))
            except CheckpointError as error:
                _warn(f"skipped when resuming: {error}")
    note = folder / "last_checkpoint"  # where MMEngine notes what it saved last
    if note.is_file():
        with note.open(errors="replace") as file:
            name = file.read(1000).strip()
        if Path(name).name not in {path.name for each in folders for path in each.glob("*")} or "://" in name:
            _warn(f"{note} names {name!r}, which is not a file of this folder; it is ignored")
    for _, _, path in sorted(found, reverse=True):
        try:
            state = state_dict_of(load_checkpoint(path), str(path))
            if broken := [
                name for name, tensor in state.items() if tensor.is_floating_point() and tensor.isnan().any()
            ]:
                raise CheckpointError(f"checkpoint {path}: {broken[0]} holds NaN")
            return str(path)
        except CheckpointError as error:
            _warn(f"skipped when resuming: {error}")
    return None


def _saved(checkpoint: dict[str, Any], path: Path) -> tuple[float, int]:
    """When the checkpoint was saved, in seconds since 1970, and its iteration."""
    meta = checkpoint.get("meta") if isinstance(checkpoint.get("meta"), dict) else {}
    iteration, saved = meta.get("iter"), meta.get("saved_at")
    if type(iteration) is not int or iteration < 0:
        raise CheckpointError(f"checkpoint {path} cannot be resumed: meta['iter'] is {iteration!r:.80}, not a count")
    if not isinstance(saved, float):  # another program's checkpoint has MMEngine's local time only
        saved = 0.0
        with suppress(ValueError, OverflowError):
            saved = time.mktime(time.strptime(str(meta.get("time")), "%Y%m%d_%H%M%S"))
    return saved, iteration


def _warn(message: str) -> None:
    print_log(message, logger="current", level=30)
