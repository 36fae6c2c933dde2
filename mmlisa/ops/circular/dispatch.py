"""The choice of LiSA's backends for encoding and mixing, by thresholds measured once per kind of device.

Nothing is timed when a model runs, so a resumed job and every rank of a distributed one choose alike.
"""

from collections.abc import Callable
from math import prod

import torch

from mmlisa.errors import UserError

from ..context import is_exporting
from . import circulant, dft, fft, reference
from .common import Side

# The two sides of LiSA, encoding and mixing: functions that prepare a kernel and a bias for one grid.
_SIDES: dict[str, tuple[Callable[..., Side], Callable[..., Side]]] = {
    "reference": (reference.prepare_encode, reference.prepare_mix),
    "fft": (fft.prepare_encode, fft.prepare_mix),
    "circulant": (circulant.prepare_encode, circulant.prepare_mix),
    "dft": (dft.prepare_encode, dft.prepare_mix),
    "rows": (dft.prepare_encode_rows, circulant.prepare_mix),
}
BACKENDS = ("auto", *_SIDES)

# The largest :func:`sizes` for which the circulant form encodes, and for which it mixes; above, the FFT does. Measured on a CPU
# at commit 130d0e2: mixing by FFT becomes the faster form between the sizes 27 and 37 (c = 16, D = 8). Unmeasured on other
# devices, which get the circulant form only where its matrices are tiny.
THRESHOLDS = {"cpu": (64, 32), "cuda": (64, 16)}
# Tokens up to which an export of a fixed size takes 'rows'. Above, 'dft' is faster in onnxruntime (commit 130d0e2).
EXPORT_ROWS = 400


def sizes(grid: tuple[int, ...], c: int, num_patterns: int) -> tuple[float, float]:
    """Products that the circulant form takes for each number encoded, N, and mixed: N² (c + D) of a head, divided by N c D."""
    return prod(grid), prod(grid) * (1 / c + 1 / num_patterns)


def choose(device: torch.device, grid: tuple[int, ...], c: int, num_patterns: int) -> tuple[str, str]:
    """Return the backends that encode and mix under ``backend='auto'``."""
    if torch.onnx.is_in_onnx_export() or is_exporting():
        is_small = all(isinstance(n, int) for n in grid) and prod(grid) <= EXPORT_ROWS
        return ("rows", "rows") if is_small else ("dft", "dft")
    limits = THRESHOLDS["cpu" if device.type in ("cpu", "meta") else "cuda"]
    pairs = zip(sizes(grid, c, num_patterns), limits, strict=True)
    encode, mix = ("circulant" if size <= limit else "fft" for size, limit in pairs)
    return encode, mix


def sides(backend: str) -> tuple[Callable[..., Side], Callable[..., Side]]:
    """Return the functions that prepare encoding and mixing; UserError for an unknown backend."""
    if backend not in _SIDES:
        raise UserError(f"backend is {backend!r}; it must be one of {BACKENDS}")
    return _SIDES[backend]
