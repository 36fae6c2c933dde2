"""Checkpoints: read without running code, matched with a model, written completely or not at all."""

import hashlib
import os
import pickle
import re
import shutil
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.torch
import torch
from filelock import FileLock
from mmengine.logging import HistoryBuffer, print_log
from torch import Tensor, nn

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


def adapt_state_dict(model: nn.Module, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy without the names of wrappers, with the stem's input channels, and with tables of another grid resampled.

    Entries that fit already stay as they are, so a second call costs nothing.
    """
    weights, adapted = model.state_dict(), below_prefix(state_dict, "")
    adapted.update({name: adapt_channels(tensor, weights.get(name)) for name, tensor in adapted.items()})
    for name, module in model.named_modules():
        if hasattr(module, "adapt_state_dict"):
            module.adapt_state_dict(adapted, f"{name}." if name else "", adapted._metadata.get(name, {}))
    return adapted


def adapt_channels(loaded: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weight of a convolution of RGB for the input channels of ``weight``, as timm does; any other weight as it is."""
    shape, wanted = getattr(loaded, "shape", ()), getattr(weight, "shape", ())  # an extra state may be any object
    if len(wanted) != 4 or shape == wanted or shape != (wanted[0], 3, *wanted[2:]):
        return loaded
    from timm.models import adapt_input_conv

    return adapt_input_conv(wanted[1], loaded)


def below_prefix(state_dict: Mapping[str, Tensor], prefix: str) -> "OrderedDict[str, Tensor]":
    """Return the entries whose names start with ``prefix``, without it, and the metadata of their modules, such as grids.

    The names of wrappers, ``module.`` of parallel training and ``_orig_mod.`` of torch.compile, do not count.
    """
    prefix = prefix.removeprefix("module.")

    def select(entries: Mapping[str, Any]) -> "OrderedDict[str, Any]":
        plain = {name.removeprefix("module.").replace("_orig_mod.", ""): entry for name, entry in entries.items()}
        return OrderedDict((name.removeprefix(prefix), each) for name, each in plain.items() if name.startswith(prefix))

    below, metadata = select(state_dict), getattr(state_dict, "_metadata", None) or {}
    of_modules = select({f"{name}.": dict(entry) for name, entry in metadata.items()})
    below._metadata = OrderedDict((name.removesuffix("."), entry) for name, entry in of_modules.items())
    return below


def match_report(model: nn.Module, state_dict: Mapping[str, Tensor]) -> tuple[float, str]:
    """Return the share of the model's entries that ``state_dict`` holds in a shape that fits, and a line that describes it."""
    weights, loaded = model.state_dict(), adapt_state_dict(model, state_dict)
    matched = _matching(weights, loaded)
    lists = {
        "missing": [name for name in weights if name not in loaded],
        "of another shape": [name for name in weights if name in loaded and name not in matched],
        "not in the model": [name for name in loaded if name not in weights],
    }
    line = f"{len(matched)} of {len(weights)} entries match"
    for label, names in lists.items():
        if names:
            line += f", {len(names)} {label} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
    return len(matched) / max(len(weights), 1), line


def _matching(weights: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entries of ``loaded`` that fit; extra states of modules, which may be any object, have no shape."""
    shapes = {name: getattr(each, "shape", None) for name, each in weights.items()}
    return {n: loaded[n] for n in shapes if n in loaded and getattr(loaded[n], "shape", None) == shapes[n]}


def check_match(model: nn.Module, state_dict: Mapping[str, Tensor], filename: str, min_matched: float) -> None:
    """Log the :func:`match_report`; a share below ``min_matched``, NaN or another kind of number is a CheckpointError."""
    weights, (share, line) = model.state_dict(), match_report(model, state_dict)
    if share < min_matched:
        remedy = "; add prefix='backbone.'" * any(f"backbone.{name}" in state_dict for name in weights)
        limit = f"min_matched is {min_matched:.0%}"
        raise CheckpointError(f"checkpoint {filename} is of another model: {line}; {limit}{remedy}")
    print_log(f"{filename}: {line}", logger="current")
    tensors = {name: each for name, each in _matching(weights, state_dict).items() if isinstance(each, Tensor)}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != weights[name].is_floating_point() or tensor.isnan().any():
            raise CheckpointError(f"checkpoint {filename}: {name} ({tensor.dtype}) holds NaN or is not a weight")


def state_dict_of(checkpoint: Mapping[str, Any], filename: str = "") -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint: its entry ``state_dict`` or ``model``, or else all of it.

    With ``filename``, the log says if averaged weights beside them are not taken. An entry that is not a tensor is a
    CheckpointError.
    """
    key = next((key for key in ("state_dict", "model") if isinstance(checkpoint.get(key), Mapping)), None)
    state = checkpoint[key] if key else checkpoint
    if key and filename:
        note_averages(checkpoint, key, filename)
    for name, value in state.items():
        if not isinstance(value, Tensor) and not str(name).endswith("_extra_state"):
            raise CheckpointError(f"checkpoint {filename}: {name!r} is a {type(value).__name__}, not a tensor")
    return state


def averaged_entry(checkpoint: Mapping[str, Any]) -> str | None:
    """Return the entry of averaged weights, such as ``model_ema``; that of MMEngine, ``ema_state_dict``, holds the others."""
    names = (name for name, each in checkpoint.items() if isinstance(each, Mapping) and name != "ema_state_dict")
    return next((name for name in names if "ema" in str(name).split("_")), None)


def note_averages(checkpoint: Mapping[str, Any], key: str, filename: str) -> None:
    """Log that the entry ``key`` of a checkpoint is loaded, if there are averaged weights, too."""
    if averaged := averaged_entry(checkpoint):
        hint = "ema=True of mmlisa.PublishedWeights and --ema of mmlisa convert take those"
        print_log(f"{filename}: loads {key!r}, not the averaged weights in {averaged!r}; {hint}", logger="current")


def load_weights(model: nn.Module, source: str | Path, min_matched: float = 0.9) -> dict[str, Any]:
    """Load the weights of ``source`` and return the whole checkpoint; see :func:`read_checkpoint`, :func:`load_state_dict`."""
    checkpoint = read_checkpoint(source)
    load_state_dict(model, state_dict_of(checkpoint, str(source)), str(source), min_matched)
    return checkpoint


def load_state_dict(model: nn.Module, state: Mapping[str, Tensor], filename: str, min_matched: float = 0.9) -> None:
    """Load the entries of ``state`` that match; ``filename`` is for messages.

    Raises:
        CheckpointError: less than the share ``min_matched`` of the model's entries match in name and shape, or an entry is not a
            weight.
    """
    state = adapt_state_dict(model, state)
    check_match(model, state, filename, min_matched)
    model.load_state_dict(_matching(model.state_dict(), state), strict=False)


@contextmanager
def atomic_path(path: str | Path, suffix: str = ".partial") -> Iterator[Path]:
    """Yield a temporary path beside ``path`` and rename it to ``path`` at the end; after an error the previous file stays.

    A missing parent folder is created. ``suffix`` ends the temporary name, for writers that choose their format by it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}{suffix}")
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
