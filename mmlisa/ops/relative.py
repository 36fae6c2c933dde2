"""Matrices of relative positions: tables over the signed offsets of a grid, spread over its pairs of tokens."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from mmlisa.errors import UserError

from .context import as_constants, is_transformed


def toeplitz(table: Tensor, grid: Sequence[int]) -> Tensor:
    """The (multi-level) Toeplitz matrices of a table over offsets: ``[..., 2 g_1 - 1, 2 g_2 - 1, ...] -> [..., N, N]``.

    Entry (i, j) is the table at the offset i - j of the grid ``(g_1, g_2, ...)``; the offset zero lies in the table's middle.
    """
    sizes = tuple(2 * g - 1 for g in grid)
    if tuple(table.shape[table.ndim - len(sizes) :]) != sizes:
        raise UserError(f"the table of the grid {tuple(grid)} must end in {sizes}, but has shape {tuple(table.shape)}")
    return table.flatten(-len(sizes))[..., offset_index(grid, table.device)]


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


def offset_index(grid: Sequence[int], device: torch.device | None = None) -> Tensor:
    """``[N, N]``: where the offset i - j lies in a flattened table ``[2 g_1 - 1, 2 g_2 - 1, ...]``."""
    axes = [torch.arange(g, device=device) for g in grid]
    index = torch.zeros(prod(grid), prod(grid), dtype=torch.long, device=device)
    for axis, position in zip(grid, torch.meshgrid(*axes, indexing="ij"), strict=True):
        position = position.flatten()
        index = index * (2 * axis - 1) + position[:, None] - position[None, :] + axis - 1
    return index
