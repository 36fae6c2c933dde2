"""Functions of the offset of two tokens: matrices of relative positions, circular kernels on other grids, global filters."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from mmlisa.errors import UserError

from .context import as_constants, at_least_fp32, is_transformed, no_autocast


def toeplitz(table: Tensor, grid: Sequence[int]) -> Tensor:
    """The (multi-level) Toeplitz matrices of a table over offsets: ``[..., 2 g_1 - 1, 2 g_2 - 1, ...] -> [..., N, N]``.

    Entry (i, j) is the table at the offset i - j of the grid ``(g_1, g_2, ...)``; the offset zero lies in the table's middle.
    """
    sizes = tuple(2 * g - 1 for g in grid)
    if tuple(table.shape[table.ndim - len(sizes) :]) != sizes:
        raise UserError(f"the table of the grid {tuple(grid)} must end in {sizes}, but has shape {tuple(table.shape)}")
    axes = [torch.arange(g, device=table.device) for g in grid]
    index = torch.zeros(prod(grid), prod(grid), dtype=torch.long, device=table.device)  # into the flattened table
    for size, position in zip(sizes, torch.meshgrid(*axes, indexing="ij"), strict=True):
        position = position.flatten()
        index = index * size + position[:, None] - position[None, :] + size // 2
    return table.flatten(-len(sizes))[..., index]


def circulant(kernel: Tensor, grid: Sequence[int]) -> Tensor:
    """``[..., *grid] -> [..., N, N]``: entry (i, j) is the kernel at the cyclic offset i - j."""
    with as_constants(grid):
        offset = torch.arange(prod(grid), device=kernel.device).view(*grid)
        for axis, g in zip(range(-len(grid), 0), grid, strict=True):
            offset = offset.index_select(axis, torch.arange(1 - g, g, device=kernel.device) % g)
        offset = toeplitz(offset, grid)
    kernel = kernel.flatten(-len(grid))
    return kernel[..., offset] if is_transformed() else _Circulant.apply(kernel, offset)


class _Circulant(torch.autograd.Function):
    """``kernel[..., offset]``, with a gradient that gathers and sums where that of indexing would scatter, ten times slower."""

    @staticmethod
    def forward(ctx, kernel: Tensor, offset: Tensor) -> Tensor:
        ctx.save_for_backward(offset)
        return kernel[..., offset]

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (offset,) = ctx.saved_tensors  # o = i - j, so j = i - o: its own inverse
        row = torch.arange(len(offset), device=offset.device)[:, None]
        return grad[..., row, offset].sum(-2), None


def resize_kernel(kernel: Tensor, grid: Sequence[int]) -> Tensor:
    """Resample the spectrum of a circular kernel exactly: ``[..., *old_grid] -> [..., *grid]``, with the origin at index 0.

    The taps stay at their signed offsets: a larger grid pads zeros in the middle, a smaller one folds the taps that no longer
    fit. The Nyquist tap of an even size stands for both signs and is split between them, so a symmetric kernel stays symmetric.
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

    Rao et al., "Global Filter Networks for Image Classification", 2021. ``[B, C, *grid]`` -> ``[B, C, *grid]`` in x's dtype; the
    FFTs run in fp32 at least.
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
