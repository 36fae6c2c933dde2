"""Reads checkpoint files from strangers: nothing in them is run, nothing is allocated that the file does not hold.

Formats, recognised by content: torch's archives and its older streams, ``.safetensors``, numpy's ``.npz``, and plain pickles
of arrays such as Paddle's ``.pdparams``.
"""

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from .checksum import verify_checksum
from .unpickling import MalformedPickleError, Storage, UnsafePickleError, unpickle

MapLocation = str | torch.device | Mapping[str, str] | Callable | None

_TORCH_MAGIC, _TORCH_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# What a compressed .npz may grow to: as many times its own size, or this many bytes.
_MAX_EXPANSION, _ALWAYS_ALLOWED = 8, 64 * 2**20


class CheckpointError(ValueError):
    """The file is damaged, holds something else than weights, or would run code; the message says which."""


def load_checkpoint(filename: str | Path, map_location: MapLocation = "cpu") -> dict[str, Any]:
    """Reads a checkpoint file: tensors, numbers, text and plain containers of them; nothing in it is run.

    The checksum of a checkpoint that :mod:`mmlisa.engine.hooks` wrote is verified, and so are the checksums that
    an archive keeps of its members. ``meta['config']``, which MMEngine would run as Python code on resuming, is left out.

    Args:
        filename: a local file.
        map_location: device of the tensors; None: the CPU.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: a file that is truncated, changed, no checkpoint, or that would run code.
    """
    path = Path(filename).expanduser()
    if not path.is_file():
        others = sorted(other.name for other in path.parent.glob("*.pth"))
        found = f"has {', '.join(others[-8:])}" if others else "has no *.pth"
        found = found if path.parent.is_dir() else "does not exist either"
        raise FileNotFoundError(f"checkpoint {path} does not exist; its folder {found}")
    with path.open("rb") as stream:
        return read_checkpoint(stream, f"checkpoint {path}", map_location)


def read_checkpoint(stream: BinaryIO, name: str, map_location: MapLocation = "cpu") -> dict[str, Any]:
    """:func:`load_checkpoint` from an open seekable file; ``name`` is for messages."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    try:
        checkpoint = _read(stream, size)
        _check_entries(checkpoint)
        verify_checksum(checkpoint)
        return move(checkpoint, map_location)
    except UnsafePickleError as error:
        raise CheckpointError(
            f"{name} holds more than weights and could run code when loaded ({error}); it is refused. "
            "Save it again as a plain state dict from where it is trusted"
        ) from error
    # Damage can surface as any exception of the libraries below; MemoryError and RecursionError included.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise CheckpointError(f"{name} is truncated, damaged or no checkpoint ({size} bytes): {reason}") from error


def _read(stream: BinaryIO, size: int) -> dict[str, Any]:
    head = stream.read(9)
    stream.seek(0)
    if head[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(stream) as archive:
            return _read_archive(archive, size)
    if head[8:9] == b"{":
        import safetensors.torch

        return safetensors.torch.load(stream.read())
    if head[:1] != b"\x80":  # how a pickle begins
        raise MalformedPickleError("it begins like no file of weights")
    return _read_stream(io.BytesIO(stream.read()))


def _read_archive(archive: zipfile.ZipFile, size: int) -> dict[str, Any]:
    """torch's archive since 1.6, or numpy's. ``zipfile`` verifies the checksum of each member that is read."""
    members = {entry.filename: entry for entry in archive.infolist()}
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if not pickles:
        return _read_npz(archive, members, size)
    if len(pickles) > 1 or sum(entry.file_size for entry in members.values()) > size:
        raise MalformedPickleError("members that overlap or are larger than the file")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in members:
        raise UnsafePickleError("a TorchScript archive")
    if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
        raise MalformedPickleError("it was written on a big-endian machine")
    storages: dict[str, Storage] = {}

    def read_storage(name: str, dtype: torch.dtype, count: int) -> Storage:
        if name not in storages:
            entry = members[f"{root}data/{name}"]
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < count * dtype.itemsize:
                raise MalformedPickleError(f"storage {name} of {count} elements in {entry.file_size} bytes")
            storages[name] = Storage(_as_tensor(archive.read(entry)), dtype)
        return Storage(storages[name].data, dtype)

    return unpickle(io.BytesIO(archive.read(pickles[0])), read_storage)


def _read_npz(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], size: int) -> dict[str, np.ndarray]:
    if not members or not all(name.endswith(".npy") for name in members):
        raise MalformedPickleError(f"an archive of {sorted(members)[:3]}, neither torch's nor numpy's")
    if sum(entry.file_size for entry in members.values()) > max(_MAX_EXPANSION * size, _ALWAYS_ALLOWED):
        raise MalformedPickleError("members much larger than the file")
    arrays = {}
    for name, entry in members.items():
        data = io.BytesIO(archive.read(entry))
        version = np.lib.format.read_magic(data)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(data)
        if dtype.hasobject or int(np.prod(shape, dtype=object)) * dtype.itemsize > entry.file_size:
            raise MalformedPickleError(f"array {name} of shape {shape} in {entry.file_size} bytes")
        data.seek(0)
        arrays[name.removesuffix(".npy")] = np.load(data, allow_pickle=False)
    return arrays


def _read_stream(stream: io.BytesIO) -> dict[str, Any]:
    """A plain pickle, or torch's format before 1.6: pickles, and the storages behind them."""
    first = unpickle(stream)
    if first != _TORCH_MAGIC:
        return first
    system = (unpickle(stream), unpickle(stream))
    if system[0] != _TORCH_PROTOCOL or not system[1].get("little_endian", True):
        raise MalformedPickleError("a protocol of torch's that is not known, or a big-endian machine")
    storages: dict[str, Storage] = {}
    left = stream.getbuffer().nbytes

    def read_storage(name: str, dtype: torch.dtype, count: int) -> Storage:
        nonlocal left
        if name not in storages:
            left -= count * dtype.itemsize
            if left < 0:
                raise MalformedPickleError("storages larger than the file")
            storages[name] = Storage(torch.zeros(count * dtype.itemsize, dtype=torch.uint8), dtype)
        return Storage(storages[name].data, dtype)

    checkpoint = unpickle(stream, read_storage)
    for name in unpickle(stream):
        count = int.from_bytes(stream.read(8), "little")
        storage = storages[name]
        data = stream.read(storage.data.numel())
        if count * storage.dtype.itemsize != len(data) or len(data) != storage.data.numel():
            raise MalformedPickleError(f"storage {name} is cut short")
        storage.data.copy_(_as_tensor(data))
        del storages[name]
    if storages:
        raise MalformedPickleError(f"{len(storages)} storages are missing")
    return checkpoint


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _check_entries(checkpoint: Any) -> None:
    """A dict whose state dict, where it has one, maps names to tensors; without the code that MMEngine would run."""
    if not isinstance(checkpoint, dict):
        raise MalformedPickleError(f"it holds a {type(checkpoint).__name__}; a dict of tensors was expected")
    for key in ("state_dict", "ema_state_dict"):
        state = checkpoint.get(key, {})
        if not isinstance(state, dict):
            raise MalformedPickleError(f"its {key} is a {type(state).__name__}")
        for name, value in state.items():
            if not isinstance(name, str):
                raise MalformedPickleError(f"its {key} has the name {name!r}, which is no text")
            if not isinstance(value, Tensor) and not name.endswith("_extra_state"):
                raise MalformedPickleError(f"{name} in its {key} is a {type(value).__name__}, not a tensor")
    if isinstance(checkpoint.get("meta"), dict):
        checkpoint["meta"].pop("config", None)


def move(checkpoint: dict[str, Any], map_location: MapLocation) -> dict[str, Any]:
    """Moves the tensors of a checkpoint; as in ``torch.load``, ``map_location`` may be a device, a mapping or a function."""
    if isinstance(map_location, Mapping):
        map_location = map_location.get("cpu")
    if map_location is None:
        return checkpoint
    if not callable(map_location) and torch.device(map_location).type == "cpu":
        return checkpoint

    def move(tensor: Tensor) -> Tensor:
        if not callable(map_location):
            return tensor.to(map_location)
        storage = map_location(tensor.untyped_storage(), "cpu")
        if storage is None or storage.device == tensor.device:
            return tensor
        empty = torch.empty(0, dtype=tensor.dtype, device=storage.device)
        return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    moved: dict[int, Any] = {}

    def walk(value: Any) -> Any:
        if id(value) in moved:
            return moved[id(value)]
        if isinstance(value, Tensor):
            moved[id(value)] = move(value)
        elif isinstance(value, dict):
            moved[id(value)] = value
            for key in value:
                value[key] = walk(value[key])
        elif isinstance(value, list):
            moved[id(value)] = value
            value[:] = [walk(item) for item in value]
        elif type(value) is tuple:
            moved[id(value)] = tuple(walk(item) for item in value)
        return moved.get(id(value), value)

    return walk(checkpoint)
