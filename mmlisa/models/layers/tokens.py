"""Maps as tokens ``x: [B, N, C]`` in row-major order beside their ``grid``, and back.

N may exceed prod(grid) by leading prefix (class) tokens.
"""

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, prod(grid), C] -> [B, C, *grid]``, a view in channels-last memory.

    ``transpose`` and ``unflatten`` would leave a single image with a batch stride that convolutions do not recognise as
    channels-last, and each would copy the map.
    """
    return x.unflatten(1, tuple(grid)).movedim(-1, 1)


def to_tokens(x: Tensor) -> Tensor:
    """``[B, C, *grid] -> [B, prod(grid), C]``, the inverse of :func:`to_map`."""
    return x.flatten(2).transpose(1, 2)


class _OnTokens:
    """Makes a convolution of maps one of tokens; prefix tokens pass through unchanged."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        prefix = x.shape[1] - prod(grid)
        y = to_tokens(super().forward(to_map(x[:, prefix:], grid)))
        return torch.cat([x[:, :prefix], y], dim=1) if prefix else y


class TokenConv(_OnTokens, nn.Conv2d):
    """Depthwise convolution over the grid: ``[B, N, C] -> [B, N, C]``; prefix tokens pass through unchanged."""

    def __init__(self, channels: int, kernel_size: int | Sequence[int], bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)


class TokenConv3d(_OnTokens, nn.Conv3d):
    """:class:`TokenConv` over the grid of a video."""

    def __init__(self, channels: int, kernel_size: int | Sequence[int], bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)


def token_conv(
    channels: int, kernel_size: int | Sequence[int], grid_axes: int = 2, *, bias: bool = True
) -> TokenConv | TokenConv3d:
    """The depthwise convolution over a grid of two axes (H, W) or three (T, H, W)."""
    return (TokenConv if grid_axes == 2 else TokenConv3d)(channels, kernel_size, bias)


class PositionResize(nn.Module):
    """Position parameters of the pretraining grid on another one, by bicubic interpolation: ``[1, N_0, C] -> [1, N, C]``.

    Those of prefix tokens stay as they are. Without gradients the result is kept until the parameter, the grid or the mode
    (train, eval) changes.
    """

    def __init__(self, grid: Sequence[int]) -> None:
        super().__init__()
        self.grid = tuple(grid)
        self._kept: tuple[tuple, Tensor] | None = None

    def train(self, mode: bool = True) -> "PositionResize":
        self._kept = None  # weights that are swapped behind autograd's back (EMA) are swapped between modes
        return super().train(mode)

    def forward(self, table: Tensor, grid: Sequence[int]) -> Tensor:
        grid = tuple(grid)
        if grid == self.grid:
            return table
        if torch.is_grad_enabled() and table.requires_grad:
            return self._resize(table, grid)
        state = (grid, table.data_ptr(), table._version, table.dtype, table.device)
        if self._kept is None or self._kept[0] != state:
            self._kept = state, self._resize(table, grid)
        return self._kept[1]

    def _resize(self, table: Tensor, grid: tuple[int, int]) -> Tensor:
        prefix, table = table.split([table.shape[1] - prod(self.grid), prod(self.grid)], dim=1)
        table_map = to_map(table.to(torch.promote_types(table.dtype, torch.float32)), self.grid)
        table_map = F.interpolate(table_map, size=grid, mode="bicubic", align_corners=False)
        return torch.cat([prefix, to_tokens(table_map).to(prefix.dtype)], dim=1)
