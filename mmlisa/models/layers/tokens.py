"""Maps as tokens ``x: [B, N, C]`` in row-major order beside their ``grid``, and back.

N may exceed prod(grid) by leading prefix (class) tokens.
"""

from collections.abc import Sequence
from math import prod
from numbers import Integral

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, prod(grid), C] -> [B, C, *grid]``, a view in channels-last memory.

    With ``transpose`` and ``unflatten`` instead, convolutions would not recognise a single image as channels-last because of its
    batch stride, and each of them would copy it.
    """
    return x.unflatten(1, grid).movedim(-1, 1)


def to_tokens(x: Tensor) -> Tensor:
    """``[B, C, *grid] -> [B, prod(grid), C]``, the inverse of :func:`to_map`."""
    return x.flatten(2).transpose(1, 2)


def after_prefix(x: Tensor, prefix: int) -> Tensor:
    """Tokens of the grid behind zeros for the prefix tokens: ``[B, N, C] -> [B, prefix + N, C]``."""
    return F.pad(x, (0, 0, prefix, 0)) if prefix else x


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Tensor:
    """Depthwise convolution over the grid: ``[B, N, C] -> [B, N, C]``; prefix tokens pass through unchanged."""
    prefix = x.shape[1] - prod(grid)
    conv = (F.conv1d, F.conv2d, F.conv3d)[len(grid) - 1]
    y = to_tokens(conv(to_map(x[:, prefix:], grid), weight, bias, padding="same", groups=weight.shape[0]))
    return torch.cat([x[:, :prefix], y], dim=1) if prefix else y


def convolve_and_add(x: Tensor, weight: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Tensor:
    """``x + convolve(x)``."""
    return x + convolve(x, weight, bias, grid)


class _OnTokens:
    """Mixin that makes a convolution of maps a depthwise one of tokens: ``[B, N, C] -> [B, N, C]``.

    Raises:
        ValueError: an even kernel size. PyTorch would shift the map by half a token.
    """

    function = staticmethod(convolve)

    def __init__(self, channels: int, kernel_size: int | Sequence[int], bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)
        if not all(size % 2 for size in self.kernel_size):
            raise ValueError(f"kernel_size={kernel_size!r}; it must be odd")

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        return self.function(x, self.weight, self.bias, grid)


class TokenConv1d(_OnTokens, nn.Conv1d):
    """:func:`convolve` as a layer, over a sequence."""


class TokenConv(_OnTokens, nn.Conv2d):
    """:func:`convolve` as a layer, over the grid of an image."""


class TokenConv3d(_OnTokens, nn.Conv3d):
    """:func:`convolve` as a layer, over the grid of a video."""


class ShortcutTokenConv(TokenConv):
    """:func:`convolve_and_add` as a layer, over the grid of an image."""

    function = staticmethod(convolve_and_add)


class SharedTokenConv(TokenConv):
    """A depthwise convolution whose d kernels are shared by all heads: ``[B, N, h d] -> [B, N, h d]``."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        # Over all channels with repeated weights: folding the heads into the batch would copy the map.
        heads = x.shape[2] // self.out_channels
        return convolve(x, self.weight.repeat(heads, 1, 1, 1), self.bias.repeat(heads), grid)


TOKEN_CONVOLUTIONS = {1: TokenConv1d, 2: TokenConv, 3: TokenConv3d}


def token_conv(
    channels: int, kernel_size: int | Sequence[int], grid_axes: int = 2, *, bias: bool = True
) -> TokenConv1d | TokenConv | TokenConv3d:
    """Depthwise convolution over a grid of one axis, two (H, W) or three (T, H, W).

    Raises:
        ValueError: ``kernel_size`` is neither a number nor one per axis.
    """
    if not isinstance(kernel_size, Integral) and len(kernel_size) != grid_axes:
        raise ValueError(f"kernel_size={kernel_size!r}; it must be a number, or {grid_axes}, one per axis of the grid")
    return TOKEN_CONVOLUTIONS[grid_axes](channels, kernel_size, bias)
