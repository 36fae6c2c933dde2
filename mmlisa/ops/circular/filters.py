"""Circular kernels on another grid, and global filters (Rao et al., "Global Filter Networks for Image Classification", 2021)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..context import at_least_fp32, no_autocast


def resize_kernel(kernel: Tensor, grid: Sequence[int]) -> Tensor:
    """Resample the spectrum of a circular kernel exactly, for another grid.

    The taps stay at their signed offsets: a larger grid pads zeros in the middle, a smaller one folds the taps that no longer
    fit. The Nyquist tap of an even size stands for both signs and is split between them, so a symmetric kernel stays symmetric.

    ``[..., *old_grid]``, with the origin at index 0, -> ``[..., *grid]``; ``kernel`` itself where the sizes are equal.
    """
    for axis, size in zip(range(-len(grid), 0), grid, strict=True):
        old = kernel.shape[axis]
        if old == size:
            continue
        offsets = torch.arange(old, device=kernel.device)
        offsets = torch.where(offsets > old // 2, offsets - old, offsets)
        if old % 2 == 0:
            before, nyquist, after = kernel.split([old // 2, 1, old // 2 - 1], dim=axis)
            kernel = torch.cat([before, nyquist / 2, after, nyquist / 2], dim=axis)
            offsets = torch.cat([offsets, -offsets[old // 2 : old // 2 + 1]])
        resized = kernel.new_zeros(*kernel.shape[:axis], size, *kernel.shape[kernel.ndim + axis + 1 :])
        kernel = resized.index_add(axis, offsets % size, kernel)
    return kernel


def global_filter(x: Tensor, spectrum: Tensor) -> Tensor:
    """A circular convolution per channel with a filter given by its half spectrum ``[C, g_1, ..., g_n // 2 + 1]`` (``rfftn``).

    ``[B, C, *grid]`` -> ``[B, C, *grid]`` in x's dtype; the FFTs run in fp32 at least.
    """
    axes = tuple(range(2, x.ndim))
    with no_autocast(x.device):
        x_f = torch.fft.rfftn(at_least_fp32(x), dim=axes)
        return torch.fft.irfftn(x_f * spectrum, s=x.shape[2:], dim=axes).to(x.dtype)


def resize_spectrum(spectrum: Tensor, grid: Sequence[int], new_grid: Sequence[int]) -> Tensor:
    """The half spectrum of the same filter on another grid: ``[..., *half(grid)] -> [..., *half(new_grid)]``."""
    axes = tuple(range(-len(grid), 0))
    with no_autocast(spectrum.device):
        taps = torch.fft.irfftn(spectrum, s=tuple(grid), dim=axes)
        return torch.fft.rfftn(resize_kernel(taps, new_grid), dim=axes)
