"""Learned weights for the offset between two tokens."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa import ops


class RelativePosition(nn.Module):
    """A table of learned weights over the offsets of a grid, as (multi-level) Toeplitz matrices.

    On a grid other than the pretraining one the table is interpolated (linearly, origin on origin).

    Args:
        shape: leading shape: ``(h,)`` is one table per head.
        grid: the pretraining grid.
    """

    def __init__(self, shape: Sequence[int], grid: Sequence[int]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(*shape, *(2 * g - 1 for g in grid)))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, grid: Sequence[int]) -> Tensor:
        """``[*shape, N, N]``, N = prod(grid); entry (i, j) belongs to the offset i - j.

        Raises:
            ValueError: ``grid`` has another number of axes than the pretraining grid.
        """
        axes, sizes = len(grid), tuple(2 * g - 1 for g in grid)
        table = self.table
        if tuple(table.shape[table.ndim - axes :]) != sizes:
            shape = table.shape[: table.ndim - axes]
            mode = ("linear", "bilinear", "trilinear")[axes - 1]
            table = table.reshape(1, -1, *table.shape[table.ndim - axes :])
            table = F.interpolate(table, size=sizes, mode=mode, align_corners=True).reshape(*shape, *sizes)
        return ops.toeplitz(table, grid)
