"""The choice of LiSA's backends for encoding and mixing, by thresholds measured once per kind of device.

Nothing is timed when a model runs, so a resumed job and every rank of a distributed one choose alike.
"""

from math import prod
from typing import NamedTuple

import torch

from ..context import is_exporting
from .circulant import EncodeCirculant, MixCirculant
from .dft import EncodeDFT, EncodeRows, MixDFT
from .fft import EncodeFFT, MixFFT
from .reference import EncodeReference, MixReference

_CLASSES = {
    "reference": (EncodeReference, MixReference),
    "fft": (EncodeFFT, MixFFT),
    "circulant": (EncodeCirculant, MixCirculant),
    "dft": (EncodeDFT, MixDFT),
    "rows": (EncodeRows, MixCirculant),
}
BACKENDS = ("auto", *_CLASSES)


class Thresholds(NamedTuple):
    """The largest size for which each backend is chosen, in order of preference. Beyond all of them, ``'fft'`` is chosen.

    A size is the number of products that the circulant form takes for each number it computes: see :func:`encode_size` and
    :func:`mix_size`.
    """

    encode: dict[str, float]
    mix: dict[str, float]


# Measured on a CPU at commit 130d0e2. Mixing by FFT becomes the faster form between the measured sizes 27 and 37 (c = 16, D = 8).
THRESHOLDS = {
    "cpu": Thresholds(encode={"circulant": 64}, mix={"circulant": 32}),
    # Unmeasured: the circulant form only where its matrices are tiny.
    "cuda": Thresholds(encode={"circulant": 64}, mix={"circulant": 16}),
}
THRESHOLDS["other"] = THRESHOLDS["cuda"]  # unmeasured as well


# Tokens up to which an export of a fixed size takes 'rows'. Above, 'dft' is faster in onnxruntime (commit 130d0e2).
EXPORT_ROWS = 400


def encode_size(grid: tuple[int, ...]) -> float:
    """N products for each number encoded."""
    return prod(grid)


def mix_size(grid: tuple[int, ...], c: int, num_patterns: int) -> float:
    """N (1 / c + 1 / D): the N² (c + D) products of the circulant form for a head, divided by N c D."""
    return prod(grid) * (1 / c + 1 / num_patterns)


def choose(device: torch.device, grid: tuple[int, ...], c: int, num_patterns: int) -> tuple[str, str]:
    """Return the backends that encode and mix under ``backend='auto'``."""
    if torch.onnx.is_in_onnx_export() or is_exporting():
        is_small = all(isinstance(n, int) for n in grid) and prod(grid) <= EXPORT_ROWS
        return ("rows", "rows") if is_small else ("dft", "dft")
    name = "cpu" if device.type == "meta" else device.type
    thresholds = THRESHOLDS.get(name, THRESHOLDS["other"])
    return _first(thresholds.encode, encode_size(grid)), _first(thresholds.mix, mix_size(grid, c, num_patterns))


def _first(limits: dict[str, float], size: float) -> str:
    return next((backend for backend, limit in limits.items() if size <= limit), "fft")


def classes(backend: str) -> tuple[type, type]:
    """Return the classes that encode and mix.

    Raises:
        ValueError: an unknown backend.
    """
    if backend not in _CLASSES:
        raise ValueError(f"backend is {backend!r}; it must be one of {BACKENDS}")
    return _CLASSES[backend]
