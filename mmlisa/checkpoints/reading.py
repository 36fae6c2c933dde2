"""Reading of checkpoint files from strangers: no file runs code, none takes more memory than its own size justifies."""

import errno
import io
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from .checksum import verify_checksum
from .rehearsal import Storage, UnsafePickleError, rehearse
from .stand_ins import STAND_INS

MapLocation = str | torch.device | Mapping[str, str] | Callable | None

_TORCH_MAGIC, _TORCH_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_EXECUTED = ("config", "cfg")  # MMEngine runs these texts as Python code
_one_at_a_time = threading.Lock()  # torch.serialization.safe_globals changes a list of the whole process


class CheckpointError(ValueError):
    """The file is damaged, holds something else than weights, or could run code; the message says which."""


def load_checkpoint(filename: str | Path, map_location: MapLocation = "cpu") -> dict[str, Any]:
    """Read a local file of PyTorch's or safetensors' formats, or a plain pickle of arrays.

    The checksums of the archive and of :func:`save_checkpoint` are verified. The configs in ``meta`` and in the message hub are
    left out, because MMEngine would run them as Python code.

    Args:
        filename: the file.
        map_location: device of the tensors, as in ``torch.load``.

    Raises:
        FileNotFoundError: no such file.
        OSError: the file cannot be read now.
        CheckpointError: the file is truncated, changed, not a checkpoint, or could run code.
    """
    path = Path(filename).expanduser()
    if not path.is_file():
        others = sorted(other.name for other in path.parent.glob("*.pth"))
        found = f"has {', '.join(others[-8:])}" if others else "has no *.pth"
        found = found if path.parent.is_dir() else "does not exist either"
        raise FileNotFoundError(f"checkpoint {path} does not exist; its folder {found}")
    try:
        with path.open("rb") as stream:
            checkpoint = _read(stream, path.stat().st_size, "cpu" if map_location is None else map_location)
        _check_entries(checkpoint)
        verify_checksum(checkpoint)
    except UnsafePickleError as error:
        raise CheckpointError(
            f"checkpoint {path} holds more than weights and could run code when loaded ({error}). It was not loaded; where it "
            "is trusted, save it again as a plain state dict"
        ) from error
    except torch.cuda.OutOfMemoryError:
        raise
    # Damage can surface as any exception of the libraries below; MemoryError and RecursionError included.
    except Exception as error:
        # A damaged offset gives EINVAL, a damaged compressed member gives no number. The others are errors of the machine.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise OSError(error.errno, f"checkpoint {path} cannot be read: {error.strerror}") from error
        reason = str(error) or type(error).__name__
        raise CheckpointError(
            f"checkpoint {path} is truncated, damaged or not a checkpoint ({path.stat().st_size} bytes): {reason}"
        ) from error
    return checkpoint


def _read(stream: BinaryIO, size: int, map_location: MapLocation) -> Any:
    head = stream.read(9)
    stream.seek(0)
    if head[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(stream) as archive:
            return _torch_load(_checked_archive(archive, size), map_location)
    if head[8:9] == b"{":
        import safetensors.torch

        return safetensors.torch.load(stream.read())
    if head[:1] != b"\x80":  # how a pickle begins
        raise ValueError("it does not begin like a file of weights")
    return _read_stream(io.BytesIO(stream.read()), size, map_location)


def _torch_load(stream: BinaryIO, map_location: MapLocation) -> Any:
    pairs = [(function, name) for name, function in STAND_INS.items()]
    with _one_at_a_time, torch.serialization.safe_globals(pairs):
        return torch.load(stream, map_location, weights_only=True, encoding="latin1")


def _checked_archive(archive: zipfile.ZipFile, size: int) -> BinaryIO:
    """Return a plain copy of PyTorch's archive, so that ``torch.load`` sees the members that are checked here and no others.

    ``zipfile`` verifies the checksum of each member that it reads.
    """
    members = {entry.filename: entry for entry in archive.infolist()}
    program, root = _program(archive, members, size)
    storages: dict[str, Storage] = {}
    rehearse(io.BytesIO(program), len(program), storages)
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w") as plain:
        plain.writestr("archive/data.pkl", program)
        plain.writestr("archive/version", b"3\n")
        for name, storage in storages.items():
            data = archive.read(f"{root}data/{name}")
            if len(data) < storage.nbytes:
                raise ValueError(f"storage {name} of {storage.nbytes} bytes in a member of {len(data)}")
            plain.writestr(f"archive/data/{name}", data)
    copy.seek(0)
    return copy


def _program(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], size: int) -> tuple[bytes, str]:
    """Return the pickle of PyTorch's archive, and the folder that it lies in."""
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1 or sum(entry.file_size for entry in members.values()) > size:
        raise ValueError(f"an archive of {sorted(members)[:3]}: not PyTorch's, or its members are larger than the file")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in members:
        raise UnsafePickleError("a TorchScript archive")
    if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
        raise ValueError("it was written on a big-endian machine")
    return archive.read(pickles[0]), root


def outline(path: Path) -> dict[str, Any]:
    """Return a checkpoint with placeholders for its tensors, read without them if the format allows it.

    Raises:
        CheckpointError: the file is damaged or could run code.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename: entry for entry in archive.infolist()}
            program, _ = _program(archive, members, path.stat().st_size)
            return rehearse(io.BytesIO(program), len(program), {})
    except Exception:
        return load_checkpoint(path)


def _read_stream(stream: BinaryIO, size: int, map_location: MapLocation) -> Any:
    """Read a plain pickle, or PyTorch's format before 1.6: five pickles, and the storages behind them."""
    first = rehearse(stream, size)
    if type(first) is not int or first != _TORCH_MAGIC:
        return first
    protocol, system = rehearse(stream, size), rehearse(stream, size)
    if protocol != _TORCH_PROTOCOL or not system.get("little_endian", True):
        raise ValueError("an unknown protocol of PyTorch's, or a big-endian machine")
    storages: dict[str, Storage] = {}
    rehearse(stream, size, storages)
    if sorted(rehearse(stream, size)) != sorted(storages):
        raise ValueError("storages are missing")
    if sum(8 + storage.nbytes for storage in storages.values()) > size - stream.tell():
        raise ValueError("storages larger than the file")
    stream.seek(0)
    return _torch_load(stream, map_location)


def _check_entries(checkpoint: Any) -> None:
    """Check that state dicts map names to tensors, and leave out the code that MMEngine would run."""
    if not isinstance(checkpoint, dict):
        raise ValueError(f"it holds a {type(checkpoint).__name__}, not a dict of tensors")
    for key in ("state_dict", "ema_state_dict"):
        state = checkpoint.get(key, {})
        if not isinstance(state, dict):
            raise ValueError(f"its {key} is a {type(state).__name__}")
        for name, value in state.items():
            if not isinstance(name, str) or not (isinstance(value, Tensor) or name.endswith("_extra_state")):
                raise ValueError(f"{name!r} in its {key} is a {type(value).__name__}, not a tensor with a name")
    hub = checkpoint.get("message_hub")
    for part in (checkpoint.get("meta"), hub.get("runtime_info") if isinstance(hub, dict) else None):
        for name in _EXECUTED if isinstance(part, dict) else ():
            part.pop(name, None)
