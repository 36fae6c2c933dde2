"""A pickle reader that builds numbers, text, containers, arrays and tensors, and cannot call anything else.

A pickle is a program for a small stack machine. The standard unpickler lets that program import and call what it likes; even
a short allow-list of real classes lets it set their internals (``numpy.dtype`` built with a state of the file's choosing
crashes the interpreter). Here every name in the file maps to a function of this module, which checks its arguments against
what is really there before it allocates anything.
"""

import math
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from mmengine.logging import HistoryBuffer
from torch import Tensor

_MAX_DIMENSIONS = 32
_ARRAY_CODES = "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
_STORAGE_DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Short": torch.int16,
}


class UnsafePickleError(Exception):
    """The pickle asks for something that is neither data nor known to be harmless."""


class MalformedPickleError(Exception):
    """The pickle is damaged or nonsense."""


@dataclass(frozen=True)
class Storage:
    """Memory of one or more tensors: ``data`` is a one-dimensional uint8 tensor."""

    data: Tensor
    dtype: torch.dtype


# Reads a tensor's memory: (name in the file, dtype, number of elements) -> Storage.
StorageReader = Callable[[str, torch.dtype, int], Storage]


def unpickle(stream: BinaryIO, read_storage: StorageReader | None = None) -> Any:
    """Reads one pickle from ``stream`` and stops behind it.

    Args:
        stream: a seekable stream in memory.
        read_storage: reads the memory of torch's tensors; without it they are refused.

    Raises:
        UnsafePickleError: the pickle names a class or function that is not on the list.
        Exception: of any type, if the pickle is damaged.
    """
    return _Machine(read_storage).run(pickletools.genops(stream))


@dataclass(frozen=True)
class _Function:
    """The only thing that a pickle may call."""

    name: str
    call: Callable[..., Any]


_MARK = object()


class _Machine:
    """The stack machine, without the opcodes that no writer of checkpoints uses."""

    def __init__(self, read_storage: StorageReader | None) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.read_storage = read_storage

    def run(self, operations: Iterable[tuple[Any, Any, int | None]]) -> Any:
        stack = self.stack
        for opcode, argument, _ in operations:
            name = opcode.name
            if name in _ARGUMENT_OPCODES:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name]())
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                self.memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(self.memo[argument])
            elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
                count = int(name[-1])
                if len(stack) < count:
                    raise MalformedPickleError(f"{name} with {len(stack)} values on the stack")
                stack[-count:] = [tuple(stack[-count:])]
            elif name in ("GLOBAL", "STACK_GLOBAL"):
                if name == "STACK_GLOBAL":
                    attribute, module = stack.pop(), stack.pop()
                    if type(attribute) is not str or type(module) is not str:
                        raise MalformedPickleError("a name that is no text")
                    argument = f"{module} {attribute}"
                stack.append(_find(argument.replace(" ", ".", 1)))
            elif name == "BINPERSID":
                stack.append(self._persistent(stack.pop()))
            elif name in ("REDUCE", "NEWOBJ"):
                arguments, function = stack.pop(), stack.pop()
                if type(function) is not _Function or type(arguments) is not tuple:
                    raise UnsafePickleError(f"a call of {type(function).__name__}")
                stack.append(function.call(*arguments))
            elif name == "BUILD":
                state = stack.pop()
                _build(stack[-1], state)
            elif name in _COLLECTORS:
                _COLLECTORS[name](stack, self._since_mark())
            elif name == "APPEND":
                value = stack.pop()
                _append(stack, [value])
            elif name == "SETITEM":
                value, key = stack.pop(), stack.pop()
                _set_items(stack, [key, value])
            elif name == "POP":
                stack.pop()
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME"):
                raise UnsafePickleError(f"the pickle instruction {name}")
        raise MalformedPickleError("it has no end")

    def _since_mark(self) -> list[Any]:
        position = next(i for i in range(len(self.stack) - 1, -1, -1) if self.stack[i] is _MARK)
        values = self.stack[position + 1 :]
        del self.stack[position:]
        return values

    def _persistent(self, identifier: Any) -> Storage:
        """``('storage', type, name, device, number of elements[, None])``: tensors are read to the CPU."""
        if self.read_storage is None or type(identifier) is not tuple or identifier[:1] != ("storage",):
            raise UnsafePickleError("a reference to something outside of the pickle")
        kind, name, _, count = identifier[1:5]
        if len(identifier) > 5 and identifier[5] is not None:
            raise MalformedPickleError("a storage that is a view of another, as torch 0.3 wrote it")
        if type(kind) is not torch.dtype or type(name) is not str:
            raise MalformedPickleError("a storage without a type or a name")
        return self.read_storage(name, kind, _count(count))


def _find(name: str) -> Any:
    if name in _VALUES:
        return _VALUES[name]
    if name in _FUNCTIONS:
        return _Function(name, _FUNCTIONS[name])
    raise UnsafePickleError(name)


def _check_keys(keys: Iterable[Any]) -> None:
    for key in keys:
        # Hashing a deeply nested tuple overflows the C stack: only flat ones.
        flat = key if type(key) is tuple else (key,)
        if not all(type(part) in (str, int, float, bool, bytes, type(None)) for part in flat):
            raise MalformedPickleError(f"a dict or set with a key of type {type(key).__name__}")


def _append(stack: list[Any], values: list[Any]) -> None:
    if type(stack[-1]) is not list:
        raise MalformedPickleError(f"appends to a {type(stack[-1]).__name__}")
    stack[-1].extend(values)


def _set_items(stack: list[Any], values: list[Any]) -> None:
    if type(stack[-1]) not in (dict, OrderedDict) or len(values) % 2:
        raise MalformedPickleError(f"sets items of a {type(stack[-1]).__name__}")
    _check_keys(values[::2])
    stack[-1].update(zip(values[::2], values[1::2], strict=True))


def _add_items(stack: list[Any], values: list[Any]) -> None:
    if type(stack[-1]) is not set:
        raise MalformedPickleError(f"adds items to a {type(stack[-1]).__name__}")
    _check_keys(values)
    stack[-1].update(values)


def _new_dict(stack: list[Any], values: list[Any]) -> None:
    stack.append({})
    _set_items(stack, values)


_ARGUMENT_OPCODES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "MARK": lambda: _MARK,
}
_COLLECTORS: dict[str, Callable[[list[Any], list[Any]], None]] = {
    "TUPLE": lambda stack, values: stack.append(tuple(values)),
    "LIST": lambda stack, values: stack.append(values),
    "DICT": _new_dict,
    "APPENDS": _append,
    "SETITEMS": _set_items,
    "ADDITEMS": _add_items,
    "POP_MARK": lambda stack, values: None,
}


def _build(target: Any, state: Any) -> None:
    """What a BUILD instruction may do to an object that was built before."""
    if type(target) is OrderedDict:  # a state dict's versions; the options of training scripts are not needed
        metadata = state.get("_metadata") if isinstance(state, dict) else None
        if isinstance(metadata, dict):
            target._metadata = metadata
    elif isinstance(target, np.dtype):
        if type(state) is not tuple or state[2:] != (None, None, None, -1, -1, 0) or state[1] not in ("<", "|", "="):
            raise UnsafePickleError("numpy.dtype with a state of its own")
    elif type(target) is np.ndarray:
        _, shape, dtype, fortran, data = state
        array = _array(_bytes(data), dtype, shape, "F" if fortran else "C")
        # In place, as other parts of the pickle may refer to the array; the state was checked.
        target.__setstate__((1, array.shape, array.dtype, bool(fortran), array.tobytes("A")))
    elif type(target) is HistoryBuffer:
        history, counts = state["_log_history"], state["_count_history"]
        if type(history) is not np.ndarray or type(counts) is not np.ndarray or history.shape != counts.shape:
            raise MalformedPickleError("a HistoryBuffer without its arrays")
        target._log_history, target._count_history = history, counts
        target.max_length = _count(state["max_length"])
    else:
        raise UnsafePickleError(f"the state of a {type(target).__name__}")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**48:
        shown = value if type(value) is int else type(value).__name__
        raise MalformedPickleError(f"{shown} where a number of elements was expected")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) > _MAX_DIMENSIONS:
        raise MalformedPickleError("a shape that is none")
    return tuple(_count(length) for length in value)


def _bytes(value: Any) -> bytes:
    """Bytes as Python 3 and, for ``str``, Python 2 wrote them."""
    return value.encode("latin-1") if type(value) is str else bytes(memoryview(value))


def _dtype(code: Any, *_: Any) -> np.dtype:
    if type(code) is not str or len(code) > 4:
        raise UnsafePickleError("numpy.dtype of something else than a plain code")
    dtype = np.dtype(code)
    if dtype.char not in _ARRAY_CODES:
        raise UnsafePickleError(f"an array of type {code!r}")
    return dtype


def _array(data: bytes, dtype: Any, shape: Any, order: Any = "C") -> np.ndarray:
    shape = _shape(shape)
    if not isinstance(dtype, np.dtype) or order not in ("C", "F"):
        raise MalformedPickleError("an array without a type")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise MalformedPickleError(f"an array of shape {shape} and type {dtype} in {len(data)} bytes")
    return np.frombuffer(bytearray(data), dtype).reshape(shape, order=order)


def _number(dtype: Any, data: Any) -> np.generic:
    return _array(_bytes(data), dtype, ())[()]


def _history(*_: Any) -> HistoryBuffer:
    return HistoryBuffer()


def _tensor(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    dtype: Any = None,
    metadata: Any = None,
) -> Tensor:
    size, stride, offset = _shape(size), _shape(stride), _count(offset)
    if type(storage) is not Storage or len(size) != len(stride) or metadata:
        raise MalformedPickleError("a tensor that is none")
    dtype = storage.dtype if type(dtype) is not torch.dtype else dtype
    count = storage.data.numel() // dtype.itemsize
    extent = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if 0 not in size else offset
    if extent > count or math.prod(size) > count:
        raise MalformedPickleError(f"a tensor of shape {size} in a storage of {count} elements")
    flat = storage.data[: count * dtype.itemsize].view(dtype) if count else torch.empty(0, dtype=dtype)
    return flat.as_strided(size, stride, offset)


def _tensor_v2(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    return _tensor(storage, offset, size, stride, metadata=metadata)


def _parameter(data: Any, *_: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise MalformedPickleError("a parameter that is no tensor")
    return data


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    """How protocol 2 writes bytes."""
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise UnsafePickleError("_codecs.encode to something else than latin1")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    return b""


def _mapping(*arguments: Any) -> OrderedDict:
    """An ordered dict, and what stands in for classes in which training scripts keep their options."""
    if arguments and type(arguments[0]) is list:  # Python 2: a list of pairs
        values = [value for pair in arguments[0] for value in pair]
        result: list[Any] = [OrderedDict()]
        _set_items(result, values)
        return result[0]
    return OrderedDict()


def _set(values: Any = ()) -> set:
    _check_keys(values)
    return set(values)


def _complex(real: Any, imaginary: Any = 0.0) -> complex:
    return complex(float(real), float(imaginary))


def _device(*parts: Any) -> str:
    """A device is only named: tensors are read to the CPU."""
    return ":".join(str(part) for part in parts if type(part) in (str, int))


def _under(modules: tuple[str, ...], **functions: Callable) -> dict[str, Callable]:
    return {f"{module}.{name}": function for module in modules for name, function in functions.items()}


_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")  # numpy 1 and 2
_BUILTINS = ("builtins", "__builtin__")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_under(("collections",), OrderedDict=_mapping),
    **_under(_BUILTINS, set=_set, frozenset=_set, complex=_complex, bytes=_no_bytes),
    # A HistoryBuffer asks for its own statistics, which a new one has already.
    **_under(_BUILTINS, getattr=lambda *_: None, slice=lambda *values: tuple(values)),
    **_under(("_codecs",), encode=_encoded),
    **_under(("mmengine.logging.history_buffer",), HistoryBuffer=_history),
    **_under(("argparse",), Namespace=_mapping),
    **_under(("yacs.config",), CfgNode=_mapping),
    **_under(_NUMPY, _reconstruct=lambda *_: np.empty(0, "u1"), scalar=_number),
    **_under(
        ("numpy.core.numeric", "numpy._core.numeric"),
        _frombuffer=lambda data, dtype, shape, order="C": _array(_bytes(data), dtype, shape, order),
    ),
    **_under(("numpy",), dtype=_dtype),
    **_under(("torch",), Size=_shape, device=_device),
    **_under(
        ("torch._utils",),
        _rebuild_tensor=_tensor_v2,
        _rebuild_tensor_v2=_tensor_v2,
        _rebuild_tensor_v3=_tensor,
        _rebuild_parameter=_parameter,
        _rebuild_parameter_with_state=_parameter,
    ),
    **_under(("torch.nn.parameter",), Parameter=_parameter),
}
_VALUES: dict[str, Any] = {
    "numpy.ndarray": None,
    "torch.storage.UntypedStorage": torch.uint8,
    **{f"torch.{name}Storage": dtype for name, dtype in _STORAGE_DTYPES.items()},
    **{str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)},
}
