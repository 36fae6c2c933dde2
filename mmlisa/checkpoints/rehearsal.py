"""Rehearsal of a pickle, before ``torch.load`` follows it.

A pickle is a program for a small stack machine. ``torch.load(weights_only=True)`` lets it call known functions only, but does not
limit what they cost: a hundred bytes can declare a tensor of terabytes, a dict key whose hash takes years, or a storage that ends
behind the file. The rehearsal follows the same instructions with a check in place of each function of PyTorch's. It takes time
and memory proportional to the size of the pickle, and refuses what would cost ``torch.load`` more.
"""

import math
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch

from .stand_ins import MAX_DIMENSIONS, STAND_INS, Array, DType, History

_COPIES = 16  # bytes and elements that functions may copy, per byte of the pickle
_INSTRUCTIONS = """PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE
    SHORT_BINUNICODE BINUNICODE8 BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_TUPLE EMPTY_LIST
    EMPTY_DICT TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL
    STACK_GLOBAL BINPERSID REDUCE NEWOBJ BUILD""".split()  # noqa: SIM905
_STORAGES = {
    **dict(Float=torch.float32, Double=torch.float64, Half=torch.float16, BFloat16=torch.bfloat16, Bool=torch.bool),
    **dict(Byte=torch.uint8, Char=torch.int8, Short=torch.int16, Int=torch.int32, Long=torch.int64),
    **dict(ComplexFloat=torch.complex64, ComplexDouble=torch.complex128),
}
_TENSOR = object()  # in place of any tensor


class UnsafePickleError(Exception):
    """The pickle asks for something that is neither data nor known to be harmless."""


@dataclass(frozen=True)
class Storage:
    """Memory of one or more tensors, as the pickle declares it."""

    dtype: torch.dtype
    nbytes: int


def rehearse(stream: BinaryIO, size: int, storages: dict[str, Storage] | None = None) -> Any:
    """Follow one pickle and stop behind it.

    Args:
        stream: a stream in memory.
        size: number of bytes of the pickle, or of the file.
        storages: gets the storages that the pickle declares, by name; without it, tensors are refused.

    Returns:
        What the pickle builds, with a placeholder for each tensor.

    Raises:
        UnsafePickleError: the pickle names a class or function that is not known.
        Exception: of any type, if the pickle is damaged or costs too much.
    """
    return _Rehearsal(stream, size, storages).load()


class _Rehearsal(pickle._Unpickler):
    """Python's unpickler in Python, with checks in the instructions that call functions or build dicts."""

    def __init__(self, stream: BinaryIO, size: int, storages: dict[str, Storage] | None) -> None:
        super().__init__(stream, encoding="latin1")
        self.budget, self.storages = _COPIES * size, storages

    def find_class(self, module: str, name: str) -> Any:
        name = f"{module}.{name}".replace("__builtin__.", "builtins.", 1)
        if name not in _NAMES:
            raise UnsafePickleError(name)
        return _NAMES[name]

    def persistent_load(self, identifier: Any) -> Storage:
        """Return the storage ``('storage', type, name, device, number of elements[, None])``."""
        if self.storages is None or type(identifier) is not tuple or identifier[:1] != ("storage",):
            raise UnsafePickleError("a reference to something outside of the pickle")
        kind, name, _, count = identifier[1:5]
        _check(
            identifier[5:] in ((), (None,)) and type(kind) is torch.dtype and type(name) is str, "an invalid storage"
        )
        found = Storage(kind, _count(count) * kind.itemsize)
        _check(self.storages.setdefault(name, found) == found, f"storage {name} is declared twice")
        return found

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _check(type(self.stack[-1]) in (dict, OrderedDict), "it sets items of something else than a dict")
        self.stack[-1].update(zip(_keys(items[::2]), items[1::2], strict=True))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.load_mark()
        self.stack += [key, value]
        self.load_setitems()

    def load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        content = self.read(size)  # Python's unpickler allocates all of it before it reads
        _check(len(content) == size, "it ends within a bytearray")
        self.append(bytearray(content))

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.pay(arguments)
        self.append(function(*arguments))

    load_newobj = load_reduce  # a call of the class

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        self.pay(state.values() if isinstance(state, dict) else state)
        if type(target) is OrderedDict:
            _check(
                not any(type(name) is not str or hasattr(target, name) for name in state), "a state that hides methods"
            )
        elif type(target) in (Array, DType, History):
            target.__setstate__(state)
        else:
            raise UnsafePickleError(f"the state of a {type(target).__name__}")

    def pay(self, copied: Iterable[Any]) -> None:
        self.budget -= sum(map(_cost, copied))
        _check(self.budget > 0, "it copies the same data again and again")

    def load_other(self) -> None:
        raise UnsafePickleError("an instruction that no checkpoint needs")


_ALLOWED = {getattr(pickle, name)[0] for name in _INSTRUCTIONS}
_Rehearsal.dispatch = {
    code: getattr(_Rehearsal, method.__name__ if code in _ALLOWED else "load_other")
    for code, method in pickle._Unpickler.dispatch.items()
}


def _check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _cost(value: Any) -> int:
    """Return what a function that copies ``value`` allocates."""
    if isinstance(value, np.ndarray):
        return value.nbytes + 1
    return len(value) + 1 if isinstance(value, str | bytes | bytearray | list | tuple | dict) else 1


def _keys(keys: list[Any]) -> list[Any]:
    """Refuse keys whose hash takes long or can be made to collide: tuples, and integers that are not their own hash."""
    for key in keys:
        plain = abs(key) < 2**60 if type(key) is int else type(key) in (str, float, bool, bytes, type(None))
        _check(plain, f"a dict or set with a key of type {type(key).__name__}")
    return keys


def _count(value: Any) -> int:
    _check(type(value) is int and 0 <= value < 2**48, "an invalid number of elements")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    _check(type(value) in (tuple, list) and len(value) <= MAX_DIMENSIONS, "an invalid shape")
    return tuple(_count(length) for length in value)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any, dtype: Any = None) -> Any:
    size, stride, offset = _shape(size), _shape(stride), _count(offset)
    _check(type(storage) is Storage and len(size) == len(stride), "an invalid tensor")
    count = storage.nbytes // (dtype or storage.dtype).itemsize
    extent = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if 0 not in size else offset
    _check(max(extent, math.prod(size)) <= count, f"a tensor of shape {size} in a storage of {count} elements")
    return _TENSOR


def _tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *_: Any) -> Any:
    _check(type(dtype) is torch.dtype, "a tensor without a type")
    return _tensor(storage, offset, size, stride, dtype=dtype)


def _parameter(data: Any, *_: Any) -> Any:
    _check(data is _TENSOR, "a parameter that is not a tensor")
    return data


def _ordered(pairs: Any = ()) -> OrderedDict:
    return OrderedDict(zip(_keys([key for key, _ in pairs]), [value for _, value in pairs], strict=True))


def _encode(text: str, encoding: str) -> bytes:
    """Return bytes from the text as which protocol 2 writes them."""
    _check(type(text) is str and encoding in ("latin1", "latin-1"), "_codecs.encode to another encoding than Latin-1")
    return text.encode("latin-1")


_NAMES: dict[str, Callable[..., Any] | torch.dtype] = {
    **STAND_INS,
    "collections.OrderedDict": _ordered,
    "_codecs.encode": _encode,
    "builtins.set": lambda values=(): set(_keys(values)),
    "builtins.complex": complex,
    "torch.Size": _shape,
    "torch.device": lambda *parts: _TENSOR,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch.storage.UntypedStorage": torch.uint8,
    **{str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)},
    **{f"torch.{kind}Storage": dtype for kind, dtype in _STORAGES.items()},
}
