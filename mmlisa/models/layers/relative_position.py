"""Learned weights for the offset between two tokens."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.ops import toeplitz

from .resize_on_load import ResizeOnLoad


class RelativePosition(ResizeOnLoad):
    """A table of learned weights over the offsets of a grid, as (multi-level) Toeplitz matrices.

    On a grid other than the pretraining one the table is interpolated (linearly, origin on origin).

    Args:
        shape: leading shape: ``(h,)`` is one table per head.
        grid: the pretraining grid.
    """

    on_grid = ("table",)

    def __init__(self, shape: Sequence[int], grid: Sequence[int]) -> None:
        super().__init__()
        self.axes_before = len(shape)
        self.table = nn.Parameter(torch.empty(*shape, *(2 * g - 1 for g in grid)))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, grid: Sequence[int]) -> Tensor:
        """``[*shape, N, N]``, N = prod(grid); entry (i, j) belongs to the offset i - j.

        Raises:
            ValueError: ``grid`` has another number of axes than the pretraining grid.
        """
        return toeplitz(_resize(self.table, tuple(2 * g - 1 for g in grid)), grid)

    def resize_parameter(self, theirs: Tensor, ours: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return _resize(theirs, tuple(ours.shape[self.axes_before :]))


def _resize(table: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """``[*shape, *any] -> [*shape, *sizes]``."""
    shape, old = table.shape[: table.ndim - len(sizes)], table.shape[table.ndim - len(sizes) :]
    if tuple(old) == sizes:
        return table
    mode = ("linear", "bilinear", "trilinear")[len(sizes) - 1]
    return F.interpolate(table.reshape(1, -1, *old), size=sizes, mode=mode, align_corners=True).reshape(*shape, *sizes)
