"""Reading of checkpoints without running their code, and their downloads."""

import hashlib
import pickle
import re
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from filelock import FileLock
from mmengine.logging import HistoryBuffer, print_log

from mmlisa.errors import UserError

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


def _method(_: type, name: str) -> Callable:
    """Stand-in for ``getattr``, by which a HistoryBuffer asks for its own statistics, and a hostile file for anything."""
    if name not in _STATISTICS:
        raise pickle.UnpicklingError(f"getattr of '{name}'")
    return getattr(HistoryBuffer, name)


_STATISTICS = ("min", "max", "current", "mean")
NUMPY: dict[str, Callable] = {"numpy.dtype": _NumberType, "numpy.ndarray": _Array}
for _core in ("core", "_core"):  # NumPy 1 and 2
    NUMPY |= {f"numpy.{_core}.multiarray._reconstruct": _Array, f"numpy.{_core}.multiarray.scalar": _scalar}
_ALLOWED = NUMPY | {
    "builtins.getattr": _method,
    "mmengine.logging.history_buffer.HistoryBuffer": HistoryBuffer,
    **dict.fromkeys(("argparse.Namespace", "yacs.config.CfgNode", "mmengine.config.config.ConfigDict"), OrderedDict),
}


def read_checkpoint(source: str | Path, map_location: str | torch.device | None = "cpu") -> dict[str, Any]:
    """Read a file of PyTorch's or safetensors' format with ``torch.load(weights_only=True)`` and an allow-list of names.

    The configs in ``meta`` and in the message hub are left out, because MMEngine would run them as Python code. That of ``meta``
    is kept as ``meta["text_of_config"]``, to be compared.

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
    hub, meta = checkpoint.get("message_hub"), checkpoint.get("meta")
    if isinstance(meta, dict) and isinstance(meta.get("cfg"), str):
        meta["text_of_config"] = meta["cfg"]
    for info in (checkpoint.get("meta"), hub.get("runtime_info") if isinstance(hub, dict) else None):
        for key in {"config", "cfg"} & info.keys() if isinstance(info, dict) else ():
            del info[key]
    return checkpoint


def _address(scheme: str, name: str) -> str | None:
    """Return the address that MMEngine's list of a scheme has for a name."""
    from mmengine.runner import checkpoint  # needs OpenCV, which a backbone does not

    lists = {"torchvision": checkpoint.get_torchvision_models, "open-mmlab": checkpoint.get_external_models}
    return lists.get(scheme, dict)().get(name)


def download(source: str | Path) -> Path:
    """Return the file ``source``, downloaded if it is ``http(s)://…``, ``'torchvision://NAME'`` or ``'open-mmlab://NAME'``.

    PyTorch's cache keeps a download. If the file's name ends in the first digits of its SHA-256, as OpenMMLab's and
    torchvision's names do, they are compared.

    Raises:
        UserError: an unsupported address, or a name that MMEngine's list lacks.
        ConnectionError: the download failed, or the file does not have the checksum in its name.
    """
    scheme, separator, name = str(source).partition("://")
    if not separator:
        return Path(source).expanduser()
    url = str(source) if scheme in ("http", "https") else _address(scheme, name)
    if url is None:
        raise UserError(f"source={source!r} is not a known address; download the file and name it")
    path = Path(url.split("?")[0].split("#")[0])
    key = hashlib.sha256(url.encode()).hexdigest()[:8]  # many files are called model.pth
    target = Path(torch.hub.get_dir()) / "checkpoints" / f"{path.stem}-from-{key}{path.suffix}"
    checksum = re.search(r"-(?!20\d{6}$)([0-9a-f]{8,64})$", path.stem)  # eight digits that begin with 20 are a date
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{target}.lock"):  # of several processes, the first downloads
            if not target.is_file():
                torch.hub.download_url_to_file(url, str(target), checksum and checksum[1])
    except (OSError, RuntimeError) as error:  # RuntimeError: another checksum
        raise ConnectionError(f"source={source!r} could not be downloaded: {error}") from error
    return target


def use_safe_loader() -> None:
    """Replace MMEngine's loaders, which may unpickle anything, by :func:`read_checkpoint`; programs call it, not the library."""
    from mmengine.runner.checkpoint import CheckpointLoader  # needs OpenCV, which a backbone does not

    def load_from_mmlisa(filename: str, map_location: str | torch.device | None = None) -> dict[str, Any]:
        return read_checkpoint(filename, map_location)  # MMEngine logs what follows load_from_ in the name

    CheckpointLoader.register_scheme(["", *CheckpointLoader._schemes], load_from_mmlisa, force=True)


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """Return the checkpoint that MMEngine saved last, or the newest of the folder if that file was moved or is cut off."""
    from mmengine.runner import find_latest_checkpoint  # needs OpenCV, too

    last = find_latest_checkpoint(str(work_dir))
    saved = [path for unit in ("epoch", "iter") for path in Path(work_dir).glob(f"{unit}_*.pth")]
    newest = sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True)
    # The last one may lie in another folder. A whole file ends with its directory.
    return next((str(path) for path in (Path(last or work_dir), *newest) if zipfile.is_zipfile(path)), None)


def averaged_entry(checkpoint: Mapping[str, Any]) -> str | None:
    """Return the entry of averaged weights, such as ``model_ema``; that of MMEngine, ``ema_state_dict``, holds the others."""
    names = (name for name, each in checkpoint.items() if isinstance(each, Mapping) and name != "ema_state_dict")
    return next((name for name in names if "ema" in str(name).split("_")), None)


def note_averages(checkpoint: Mapping[str, Any], key: str, filename: str) -> None:
    """Log that the entry ``key`` of a checkpoint is loaded, if there are averaged weights, too."""
    if averaged := averaged_entry(checkpoint):
        hint = "ema=True of mmlisa.PublishedWeights and --ema of mmlisa convert take those"
        print_log(f"{filename}: loads {key!r}, not the averaged weights in {averaged!r}; {hint}", logger="current")
