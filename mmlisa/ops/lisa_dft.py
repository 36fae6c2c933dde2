"""LiSA by discrete Fourier transforms as real matrix products: no complex numbers, no FFT, nothing an export cannot express.

The form is that of ``lisa_fft`` (two patterns in one complex number), on pairs (real, imaginary) and differentiated by autograd.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .precision import no_autocast

Pair = tuple[Tensor, Tensor]


class DFTKernels(NamedTuple):
    """Spectra scaled by 1/N as (real, imaginary): ``a [P, c, *grid]``, ``b [P, 1, *grid]``; biases ``[P, c, 1, ..., 1]``."""

    a: Pair
    b: Pair
    bias: Pair
    bias_a: Pair | None

    @classmethod
    def prepare(cls, kernel_a: Tensor, kernel_b: Tensor, bias: Tensor, bias_a: Tensor | None) -> "DFTKernels":
        grid = kernel_b.shape[1:]
        column = (..., *(None,) * len(grid))
        n = grid.numel()
        return cls(
            *(
                tuple(x / n for x in _transform(_pattern_pair(kernel), grid))
                for kernel in (kernel_a.transpose(0, 1), kernel_b[:, None])
            ),
            *(x if x is None else tuple(y[column] for y in _pattern_pair(x.T)) for x in (bias, bias_a)),
        )

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        dtype, grid = query.dtype, query.shape[3:]
        with no_autocast(query.device):
            query, key, value = (x.to(self.bias[0].dtype) for x in (query, key, value))
            key_f, value_f = (_transform((x, torch.zeros_like(x)), grid) for x in (key, value))
            y = torch.zeros_like(value)
            for p in range(len(self.bias[0])):
                ga = _transform(_multiply(key_f, _pick(self.a, p)), grid, inverse=True)
                if self.bias_a is not None:
                    ga = _add(ga, _pick(self.bias_a, p))
                gb = _add(_transform(_multiply(value_f, _pick(self.b, p)), grid, inverse=True), _pick(self.bias, p))
                s = [(query * x).sum(2, keepdim=True) for x in ga]
                y = y + s[0] * gb[0] + s[1] * gb[1]
            return y.to(dtype)


def _pattern_pair(x: Tensor) -> Pair:
    """``[D, ...]`` -> two of ``[ceil(D / 2), ...]``: patterns 0, 2, 4 … and 1, 3, 5 …, in fp32 at least."""
    x = x if x.dtype == torch.float64 else x.float()
    if x.shape[0] % 2:
        x = torch.cat([x, torch.zeros_like(x[:1])])
    return x[::2], x[1::2]


def _pick(x: Pair, p: int) -> Pair:
    return x[0][p], x[1][p]


def _add(x: Pair, y: Pair) -> Pair:
    return x[0] + y[0], x[1] + y[1]


def _multiply(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


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
