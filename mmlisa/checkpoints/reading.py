"""Reading of checkpoint files: no file runs code."""

import pickle
import re
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from mmengine.logging import HistoryBuffer

from mmlisa.errors import UserError

from .downloading import download

_one_at_a_time = threading.Lock()  # torch.serialization.safe_globals changes a list of the whole process


class CheckpointError(UserError):
    """The file is damaged, holds something else than weights, or could run code."""


class _NumberType:
    """Stand-in for ``numpy.dtype``, whose state in a hostile file could corrupt memory; it is ignored."""

    def __init__(self, code: str, *_: Any) -> None:
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "biufc":
            raise pickle.UnpicklingError(f"an array of type {code}")

    def __setstate__(self, state: tuple) -> None:
        if state[1] == ">":
            raise pickle.UnpicklingError("an array of a big-endian machine")


class _Array(np.ndarray):
    """Array of numbers, filled by its state; saved as a plain array."""

    def __new__(cls, *_: Any) -> "_Array":
        return super().__new__(cls, 0, np.uint8)

    def __setstate__(self, state: tuple) -> None:
        _, shape, number, fortran, data = state
        super().__setstate__((1, shape, number.dtype, fortran, data))

    def __reduce__(self) -> tuple:
        return np.asarray(self).__reduce__()


def _scalar(number: _NumberType, data: bytes) -> np.generic:
    return np.frombuffer(data, number.dtype)[0]


NUMPY: dict[str, Callable] = {"numpy.dtype": _NumberType, "numpy.ndarray": _Array}
for _core in ("core", "_core"):  # NumPy 1 and 2
    NUMPY |= {f"numpy.{_core}.multiarray._reconstruct": _Array, f"numpy.{_core}.multiarray.scalar": _scalar}
_ALLOWED = NUMPY | {
    "builtins.getattr": lambda _, name: getattr(HistoryBuffer, name),  # a HistoryBuffer asks for its own methods
    "mmengine.logging.history_buffer.HistoryBuffer": HistoryBuffer,
    **dict.fromkeys(("argparse.Namespace", "yacs.config.CfgNode", "mmengine.config.config.ConfigDict"), OrderedDict),
}


def read_checkpoint(source: str | Path, map_location: str | torch.device | None = "cpu") -> dict[str, Any]:
    """Read a file of PyTorch's or safetensors' format with ``torch.load(weights_only=True)`` and an allow-list of names.

    The configs in ``meta`` and in the message hub are left out, because MMEngine would run them as Python code.

    Raises:
        OSError: the file or address (see :func:`download`) does not exist, cannot be read or downloaded.
        CheckpointError: the file is damaged, not a checkpoint, or could run code.
    """
    path = download(source)
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path, str(map_location or "cpu"))
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if damaged := archive.testzip():
                    raise CheckpointError(f"checkpoint '{path}' is damaged in '{damaged}'; use another copy")
        with _one_at_a_time, torch.serialization.safe_globals([(one, name) for name, one in _ALLOWED.items()]):
            checkpoint = torch.load(path, map_location, weights_only=True)
    except (OSError, CheckpointError):
        raise
    except Exception as error:  # damage surfaces as many types
        if unknown := re.search(r"GLOBAL (\S+)", str(error)):
            code = f"could run code ({unknown[1]}) and was not loaded; save it as a plain state dict"
            raise CheckpointError(f"checkpoint '{path}' {code}") from error
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        raise CheckpointError(f"checkpoint '{path}' is damaged, or not PyTorch's or safetensors' ({reason})") from error
    if not isinstance(checkpoint, dict):
        raise CheckpointError(f"checkpoint '{path}' holds a {type(checkpoint).__name__}, not a dict of tensors")
    hub = checkpoint.get("message_hub")
    for info in (checkpoint.get("meta"), hub.get("runtime_info") if isinstance(hub, dict) else None):
        for key in {"config", "cfg"} & info.keys() if isinstance(info, dict) else ():
            del info[key]
    return checkpoint


def use_safe_loader() -> None:
    """Replace MMEngine's loaders, which may unpickle anything, in this process; programs call it, the library does not."""
    from mmengine.runner.checkpoint import CheckpointLoader  # needs OpenCV, which a backbone does not

    CheckpointLoader.register_scheme(["", *CheckpointLoader._schemes], load_from_mmlisa, force=True)


def load_from_mmlisa(filename: str, map_location: str | torch.device | None = None) -> dict[str, Any]:
    """Read a checkpoint for MMEngine, which logs what follows ``load_from_`` in the name of a loader."""
    return read_checkpoint(filename, map_location)


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """Return the checkpoint that MMEngine saved last, or the one before if that file is missing or truncated.

    Only the directory at the end of each file is read. MMEngine's ``last_checkpoint`` may name a file in another folder.
    """
    from mmengine.runner import find_latest_checkpoint  # needs OpenCV, too

    last = Path(find_latest_checkpoint(str(work_dir)) or work_dir)
    folders = {Path(work_dir), last.parent}
    saved = [path for folder in folders for unit in ("epoch", "iter") for path in folder.glob(f"{unit}_*.pth")]
    newest = sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True)
    return next((str(path) for path in (last, *newest) if zipfile.is_zipfile(path)), None)
