"""LiSA by discrete Fourier transforms as real matrix products: no complex numbers, no FFT, nothing an export cannot express.

The form is that of :mod:`mmlisa.ops.lisa.fft` with two patterns in one complex number, as pairs (real, imaginary);
autograd differentiates it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..precision import at_least_fp32, no_autocast

Pair = tuple[Tensor, Tensor]


class EncodeDFT(NamedTuple):
    """Key side: spectra of pattern pairs scaled by 1/N, ``[P, c, *grid]``, and their bias ``[P, c, 1, ..., 1]``."""

    kernel_f: Pair
    bias: Pair | None
    num_patterns: int

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor | None) -> "EncodeDFT":
        """From ``kernel_a [c, D, *grid]`` and ``bias_a [c, D]``."""
        grid = kernel.shape[2:]
        bias = None if bias is None else _pair(bias.T[(..., *(None,) * len(grid))])
        with no_autocast(kernel.device):
            return cls(_spectrum(_pair(kernel.transpose(0, 1)), grid), bias, kernel.shape[1])

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """``[M, c, *grid]`` each -> ``[M, D, *grid]``."""
        grid = query.shape[2:]
        with no_autocast(query.device):
            key_f, s = _transform((key, torch.zeros_like(key)), grid), []
            for p in range(len(self.kernel_f[0])):
                g = _transform(_multiply(key_f, _pick(self.kernel_f, p)), grid, inverse=True)
                if self.bias is not None:
                    g = _add(g, _pick(self.bias, p))
                s += [(query * x).sum(1) for x in g]
        return torch.stack(s[: self.num_patterns], dim=1)


class MixDFT(NamedTuple):
    """Value side: spectra of pattern pairs scaled by 1/N, ``[P, *grid]``, and their bias ``[P, c, 1, ..., 1]``."""

    kernel_f: Pair
    bias: Pair

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor) -> "MixDFT":
        """From ``kernel_b [D, *grid]`` and ``bias [c, D]``."""
        grid = kernel.shape[1:]
        with no_autocast(kernel.device):
            return cls(_spectrum(_pair(kernel), grid), _pair(bias.T[(..., *(None,) * len(grid))]))

    def __call__(self, s: Tensor, value: Tensor) -> Tensor:
        """``[M, D, *grid]``, ``[M, c, *grid]`` -> ``[M, c, *grid]``."""
        grid, y = value.shape[2:], torch.zeros_like(value)
        with no_autocast(value.device):
            value_f = _transform((value, torch.zeros_like(value)), grid)
            for p in range(len(self.kernel_f[0])):
                g = _transform(_multiply(value_f, _pick(self.kernel_f, p)), grid, inverse=True)
                g = _add(g, _pick(self.bias, p))
                for d in range(2 * p, min(2 * p + 2, s.shape[1])):
                    y = y + s[:, d, None] * g[d % 2]
        return y


def _pair(x: Tensor) -> Pair:
    """``[D, ...]`` -> two of ``[P, ...]``: patterns 0, 2, 4 … and 1, 3, 5 …; an odd D is padded with zeros."""
    x = at_least_fp32(x)
    if x.shape[0] % 2:
        x = torch.cat([x, torch.zeros_like(x[:1])])
    return x[::2], x[1::2]


def _pick(x: Pair, p: int) -> Pair:
    return x[0][p], x[1][p]


def _add(x: Pair, y: Pair) -> Pair:
    return x[0] + y[0], x[1] + y[1]


def _multiply(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _spectrum(x: Pair, grid: torch.Size) -> Pair:
    real, imaginary = _transform(x, grid)
    return real / grid.numel(), imaginary / grid.numel()


def _transform(x: Pair, grid: Sequence[int], inverse: bool = False) -> Pair:
    """DFT over the last ``len(grid)`` axes; the inverse without its factor 1/N."""
    real, imaginary = x
    for axis, n in zip(range(-len(grid), 0), grid, strict=True):
        index = torch.arange(n, device=real.device, dtype=torch.float64)
        angle = torch.outer(index, index).remainder(n) * (2 * torch.pi / n)  # small angles keep fp32 exact
        cos, sin = angle.cos().to(real.dtype), angle.sin().to(real.dtype)
        if not inverse:
            sin = -sin
        real, imaginary = real.movedim(axis, -1), imaginary.movedim(axis, -1)
        real, imaginary = real @ cos - imaginary @ sin, real @ sin + imaginary @ cos
        real, imaginary = real.movedim(-1, axis), imaginary.movedim(-1, axis)
    return real, imaginary
