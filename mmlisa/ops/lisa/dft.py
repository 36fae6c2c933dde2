"""LiSA by discrete Fourier transforms as real matrix products: no complex numbers, no FFT, nothing an export cannot express.

The form is that of :mod:`mmlisa.ops.lisa.fft` with two patterns in one complex number, all P = D / 2 of them at
once, so that a graph of it stays small. Complex numbers are pairs on the last axis: real and imaginary part, patterns 2p and
2p + 1.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import pi, prod

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..precision import at_least_fp32, no_autocast
from ..tracing import is_exporting


@dataclass(eq=False)
class EncodeDFT:
    """Key side: spectra of pattern pairs scaled by 1/N, ``[P, c, *grid, 2]``, and their bias ``[P, c, 1, ..., 1, 2]``."""

    kernel_f: Tensor
    bias: Tensor | None
    num_patterns: int

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor | None, grid: Sequence[int] | None = None) -> "EncodeDFT":
        """From ``kernel_a [c, D, *its grid]`` and ``bias_a [c, D]``; for tokens on ``grid``, or on the kernel's own."""
        grid = kernel.shape[2:] if grid is None else grid
        bias = None if bias is None else _pair(bias.T[(..., *(None,) * len(grid))])
        with no_autocast(kernel.device):
            return cls(_spectrum(_pair(kernel.transpose(0, 1)), grid), bias, kernel.shape[1])

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """``[M, c, *grid]`` each -> ``[M, D, *grid]``."""
        with no_autocast(query.device):
            matrices = _matrices(key.shape[2:], key)
            key_f = _transform(torch.stack([key, torch.zeros_like(key)], dim=-1), matrices)
            g = _inverse(_multiply(key_f[:, None], self.kernel_f), matrices)
            if self.bias is not None:
                g = g + self.bias
            s = (query[:, None, ..., None] * g).sum(2)
        return s.movedim(-1, 2).flatten(1, 2)[:, : self.num_patterns]


@dataclass(eq=False)
class MixDFT:
    """Value side: spectra of pattern pairs scaled by 1/N, ``[P, 1, *grid, 2]``, and their bias ``[P, c, 1, ..., 1, 2]``."""

    kernel_f: Tensor
    bias: Tensor

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor, grid: Sequence[int] | None = None) -> "MixDFT":
        """From ``kernel_b [D, *its grid]`` and ``bias [c, D]``; for tokens on ``grid``, or on the kernel's own."""
        grid = kernel.shape[1:] if grid is None else grid
        with no_autocast(kernel.device):
            return cls(_spectrum(_pair(kernel[:, None]), grid), _pair(bias.T[(..., *(None,) * len(grid))]))

    def __call__(self, s: Tensor, value: Tensor) -> Tensor:
        """``[M, D, *grid]``, ``[M, c, *grid]`` -> ``[M, c, *grid]``."""
        with no_autocast(value.device):
            matrices = _matrices(value.shape[2:], value)
            value_f = _transform(torch.stack([value, torch.zeros_like(value)], dim=-1), matrices)
            g = _inverse(_multiply(value_f[:, None], self.kernel_f), matrices) + self.bias
            return (_pair(s.transpose(0, 1)).transpose(0, 1)[:, :, None] * g).sum((1, -1))


def _pair(x: Tensor) -> Tensor:
    """``[D, ...]`` -> ``[P, ..., 2]``; an odd D is padded with zeros."""
    x = at_least_fp32(x)
    if x.shape[0] % 2:
        x = torch.cat([x, torch.zeros_like(x[:1])])
    return x.unflatten(0, (-1, 2)).movedim(1, -1)


def _multiply(x: Tensor, y: Tensor) -> Tensor:
    """The complex product of ``[..., 2]`` and ``[..., 2]``."""
    (a, b), (c, d) = x.unbind(-1), y.unbind(-1)
    return torch.stack([a * c - b * d, a * d + b * c], dim=-1)


def _spectrum(kernel: Tensor, grid: Sequence[int]) -> Tensor:
    """``[..., *its grid, 2]`` -> its spectrum on ``grid`` over N: what ``resize_kernel`` and a transform give."""
    own = kernel.shape[-1 - len(grid) : -1]
    with _as_constants(grid):
        matrices = [_resampling_matrix(n, size, kernel) for n, size in zip(own, grid, strict=True)]
    return _transform(kernel, matrices) / prod(grid)


def _matrices(grid: Sequence[int], like: Tensor) -> list[Tensor]:
    """Those of the transform over ``grid``."""
    with _as_constants(grid):
        return [_matrix(torch.arange(n, device=like.device, dtype=torch.float64), n, like) for n in grid]


def _as_constants(grid: Sequence[int]) -> AbstractContextManager:
    """Within, an export computes with numbers and records nothing, where ``grid`` is known: half of a graph's nodes less."""
    is_known = all(isinstance(n, int) for n in grid)
    return _disable_current_modes() if is_exporting() and is_known else nullcontext()


def _resampling_matrix(own: int, size: int, like: Tensor) -> Tensor:
    """Those of the ``own`` taps of a kernel, at their signed offsets 0, 1, ..., own / 2, ..., -1, to ``size`` frequencies."""
    offsets = torch.arange(own, device=like.device, dtype=torch.float64)
    matrix = _matrix(torch.where(offsets > own // 2, offsets - own, offsets), size, like)
    if own % 2:
        return matrix
    # The Nyquist tap stands for both signs: no sines.
    keep = torch.ones(own, 2, 1, 2, device=like.device, dtype=like.dtype)
    keep[own // 2, 0, :, 1] = keep[own // 2, 1, :, 0] = 0
    return (matrix.view(own, 2, -1, 2) * keep).view(2 * own, -1)


def _matrix(offsets: Tensor, n: int, like: Tensor) -> Tensor:
    """``[2 r, 2 n]``: pairs at r offsets to pairs at n frequencies, the real form of ``exp(-2 pi i offset frequency / n)``."""
    frequency = torch.arange(n, device=like.device, dtype=torch.float64)
    angle = torch.outer(offsets, frequency).remainder(n) * (2 * pi / n)  # small angles keep fp32 exact
    # cos, -sin; sin, cos
    shift = torch.tensor([[0, pi / 2], [-pi / 2, 0]], device=like.device, dtype=torch.float64)
    return (angle[:, None, :, None] + shift[:, None]).cos().to(like.dtype).flatten(2).flatten(0, 1)


def _transform(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """``x: [..., *grid, 2]``, its last grid axis first; after all axes they are in their order again."""
    for matrix in reversed(matrices):
        x = (x.flatten(-2) @ matrix).unflatten(-1, (-1, 2)).movedim(-2, -1 - len(matrices))
    return x


def _inverse(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Without its factor 1/N."""
    return _transform(x, [matrix.mT for matrix in matrices])
