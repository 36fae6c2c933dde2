"""Maps as tokens ``x: [B, N, C]`` in row-major order beside their ``grid``, and back.

N may exceed prod(grid) by leading prefix (class) tokens.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from mmlisa import ops


def to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, prod(grid), C] -> [B, C, *grid]``, a view in channels-last memory.

    ``transpose`` and ``unflatten`` would leave a single image with a batch stride that convolutions do not recognise as
    channels-last, and each would copy the map.
    """
    return x.unflatten(1, tuple(grid)).movedim(-1, 1)


def to_tokens(x: Tensor) -> Tensor:
    """``[B, C, *grid] -> [B, prod(grid), C]``, the inverse of :func:`to_map`."""
    return x.flatten(2).transpose(1, 2)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Tensor:
    """Depthwise convolution over the grid: ``[B, N, C] -> [B, N, C]``; prefix tokens pass through unchanged."""
    prefix = x.shape[1] - prod(grid)
    y = to_tokens(ops.depthwise(to_map(x[:, prefix:], grid), weight, bias))
    return torch.cat([x[:, :prefix], y], dim=1) if prefix else y


class TokenConv(nn.Conv2d):
    """:func:`convolve` as a layer."""

    def __init__(self, channels: int, kernel_size: int | Sequence[int], bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        return convolve(x, self.weight, self.bias, grid)


class TokenConv3d(nn.Conv3d):
    """:class:`TokenConv` over the grid of a video."""

    def __init__(self, channels: int, kernel_size: int | Sequence[int], bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)

    forward = TokenConv.forward


def token_conv(
    channels: int, kernel_size: int | Sequence[int], grid_axes: int = 2, *, bias: bool = True
) -> TokenConv | TokenConv3d:
    """The depthwise convolution over a grid of two axes (H, W) or three (T, H, W)."""
    return (TokenConv if grid_axes == 2 else TokenConv3d)(channels, kernel_size, bias)
