"""Stand-ins for the NumPy and MMEngine names in checkpoints of training scripts.

The real functions trust the file: ``numpy.dtype``, built with a state of the file's choosing, crashes the interpreter. The
stand-ins accept plain type codes, and a shape together with exactly as many bytes as it needs.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from mmengine.logging import HistoryBuffer

_CODES = "?" + np.typecodes["AllInteger"] + np.typecodes["AllFloat"]
MAX_DIMENSIONS = 32


class DType:
    """Stand-in for ``numpy.dtype`` in little-endian order."""

    def __init__(self, code: str, *_: Any) -> None:
        if type(code) is not str or len(code) > 4 or np.dtype(code).char not in _CODES:
            raise ValueError(f"an array of type {code!r:.40}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        if state[1] not in ("<", "|", "=") or state[2:] != (None, None, None, -1, -1, 0):
            raise ValueError("a numpy.dtype with a state of its own")


def array_of(data: bytes | str, dtype: DType, shape: tuple[int, ...], order: str = "C") -> np.ndarray:
    """Return a copy of ``data``, which pickles of Python 2 hold as Latin-1 text, as an array."""
    data = data.encode("latin-1") if type(data) is str else bytes(memoryview(data))
    if type(shape) is not tuple or len(shape) > MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("an array with an invalid shape")
    if type(dtype) is not DType or len(data) != math.prod(shape) * dtype.dtype.itemsize:
        raise ValueError(f"an array of shape {shape} in {len(data)} bytes")
    return np.frombuffer(bytearray(data), dtype.dtype).reshape(shape, order=order)


class Array(np.ndarray):
    """Stand-in for ``numpy.ndarray``: empty until a checked state fills it; saved as a plain array."""

    def __new__(cls, *_: Any) -> "Array":
        return super().__new__(cls, 0, np.uint8)

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran, data = state
        array = array_of(data, dtype, shape)
        super().__setstate__((1, shape, array.dtype, bool(fortran), array.tobytes()))

    def __reduce__(self) -> tuple:
        return np.asarray(self).__reduce__()


class History(HistoryBuffer):
    """Stand-in for MMEngine's ``HistoryBuffer``: becomes one when a checked state fills it."""

    def __init__(self) -> None:
        pass

    def __setstate__(self, state: dict[str, Any]) -> None:
        log, count, length = state["_log_history"], state["_count_history"], state["max_length"]
        if type(log) is not Array or type(count) is not Array or log.shape != count.shape or type(length) is not int:
            raise ValueError("a HistoryBuffer without its arrays")
        HistoryBuffer.__init__(self, np.asarray(log), np.asarray(count), length)
        self.__class__ = HistoryBuffer


class Options:
    """Stand-in for the classes in which training scripts keep their options: an ordered dict with attributes."""

    def __new__(cls) -> OrderedDict:
        return OrderedDict()


def _counter(counts: dict) -> Counter:
    """Return the milestones of a MultiStepLR."""
    if type(counts) is not dict or any(type(count) is not int for count in counts.values()):
        raise ValueError("a Counter of something else than counts")
    return Counter(counts)


STAND_INS: dict[str, Callable[..., Any]] = {
    "argparse.Namespace": Options,
    "collections.Counter": _counter,
    "yacs.config.CfgNode": Options,
    "mmengine.logging.history_buffer.HistoryBuffer": History,
    "builtins.bytes": lambda: b"",
    "builtins.getattr": lambda *_: None,  # with which a HistoryBuffer asks for its own methods
    "numpy.dtype": DType,
    "numpy.ndarray": Array,
}
for _core in ("core", "_core"):  # NumPy 1 and 2
    STAND_INS[f"numpy.{_core}.multiarray._reconstruct"] = Array
    STAND_INS[f"numpy.{_core}.multiarray.scalar"] = lambda dtype, data: array_of(data, dtype, ())[()]
    STAND_INS[f"numpy.{_core}.numeric._frombuffer"] = array_of
