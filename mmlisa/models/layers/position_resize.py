"""Position embeddings on another grid than the pretraining one."""

from collections.abc import Sequence
from math import isqrt, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.ops.context import at_least_fp32, is_traced, no_autocast

from .grid_cache import GridCache
from .resize_on_load import ResizeOnLoad, resize_rows
from .tokens import to_map, to_tokens

# A class and a distillation token. A table with more rows beyond a square number is not of a square grid.
_MAX_PREFIX = 2


class PositionResize(nn.Module):
    """Bicubic interpolation of position parameters of the pretraining grid: ``[1, N_0, C] -> [1, N, C]``.

    Positions of prefix tokens stay unchanged. The result is cached if no gradient is required: see :class:`GridCache`.
    """

    def __init__(self, grid: Sequence[int]) -> None:
        super().__init__()
        self.grid = tuple(grid)
        self._resized = GridCache()

    def forward(self, table: Tensor, grid: Sequence[int]) -> Tensor:
        grid = tuple(grid)
        if grid == self.grid:
            return table
        return self._resized.get(grid, [table], lambda: self._resize(table, grid))

    def from_another(self, theirs: Tensor, ours: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Interpolate the positions ``theirs: [1, N, C]`` from ``grid`` (None: a square) to ``self.grid``.

        As many prefix tokens as ``ours`` has stay unchanged; further ones, such as a distillation token, are left out. A table
        that does not fit ``grid`` is returned as it is.
        """
        wanted, count = ours.shape[1] - prod(self.grid), theirs.shape[1]
        grid = grid or (isqrt(count),) * 2
        prefix = count - prod(grid)
        if not wanted <= prefix <= _MAX_PREFIX:
            return theirs
        return torch.cat([theirs[:, :wanted], resize_rows(theirs[0, prefix:], self.grid, grid)[None]], dim=1)

    def _resize(self, table: Tensor, grid: tuple[int, ...]) -> Tensor:
        prefix = table.shape[1] - prod(self.grid)
        resized = _interpolate(at_least_fp32(table[:, prefix:]), self.grid, grid).to(table.dtype)
        return torch.cat([table[:, :prefix], resized], dim=1) if prefix else resized


class PositionsOnLoad(ResizeOnLoad):
    """Base of modules with positions ``[1, N, C]`` on the grid of ``self.resize``, a :class:`PositionResize`."""

    @property
    def grid(self) -> tuple[int, ...]:
        return self.resize.grid

    def resize_parameter(self, theirs: Tensor, ours: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return self.resize.from_another(theirs, ours, grid)


def _interpolate(table: Tensor, old: tuple[int, ...], new: tuple[int, ...]) -> Tensor:
    """``[1, prod(old), C] -> [1, prod(new), C]``.

    As a product with a matrix along either axis, whose gradient takes a sixth of the time of PyTorch's
    own (96 channels, 56x56 to 128x128, on a CPU).
    """
    if is_traced():  # the sizes may be symbols
        return to_tokens(F.interpolate(to_map(table, old), size=new, mode="bicubic", align_corners=False))
    with no_autocast(table.device):
        for axis, (n, size) in enumerate(zip(old, new, strict=True)):
            unit = torch.eye(n, dtype=table.dtype, device=table.device)[None, None]
            matrix = F.interpolate(unit, size=(size, n), mode="bicubic", align_corners=False)[0, 0]
            after = table.unflatten(1, (*new[:axis], *old[axis:])).flatten(axis + 2)
            table = (matrix @ after).reshape(1, -1, table.shape[2])
    return table
