"""Circular kernels on another grid."""

import torch
from torch import Tensor

RESIZE_MODES = ("spectrum", "interpolate")


def resize_kernel(kernel: Tensor, grid: tuple[int, ...], mode: str = "spectrum") -> Tensor:
    """The same circular kernel on another grid.

    Args:
        kernel: ``[..., *old_grid]``, the origin at index 0.
        grid: the new size of the last ``len(grid)`` axes.
        mode: ``'spectrum'`` resamples the spectrum exactly; ``'interpolate'`` interpolates the taps (bi-, tri-)linearly.

    Returns:
        ``[..., *grid]``; ``kernel`` itself where the sizes are equal.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in RESIZE_MODES:
        raise ValueError(f"mode is {mode!r}; it must be one of {RESIZE_MODES}")
    grid = tuple(grid)
    if tuple(kernel.shape[-len(grid) :]) == grid:
        return kernel
    return _resample(kernel, grid) if mode == "spectrum" else _interpolate(kernel, grid)


def _resample(kernel: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Keep the taps at their signed offsets: a larger grid pads zeros in the middle, a smaller one folds the taps that no
    longer fit.

    The Nyquist tap of an even size stands for both signs and is split between them, so a symmetric kernel stays symmetric.
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


def _interpolate(kernel: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Interpolate the taps at their signed offsets, so that the origin and a symmetric kernel stay what they are."""
    for axis, size in zip(range(-len(grid), 0), grid, strict=True):
        old = kernel.shape[axis]
        offset = torch.arange(size, device=kernel.device)
        offset = torch.where(offset > size // 2, offset - size, offset) * old  # in units of 1 / size
        below = offset.div(size, rounding_mode="floor")
        share = ((offset - below * size) / size).to(kernel.dtype).view(-1, *[1] * (-axis - 1))
        kernel = torch.lerp(*(kernel.index_select(axis, (below + step) % old) for step in (0, 1)), share)
    return kernel
