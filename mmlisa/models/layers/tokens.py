"""What hosts share that keep their maps as tokens: ``x: [B, N, C]`` in row-major order beside their ``grid``.

N may exceed prod(grid) by leading prefix (class) tokens.
"""

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from mmlisa.ops.tokenwise import add_in_bands, add_residual, tokenwise

from .linear import TokenLinear


def to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, H W, C] -> [B, C, H, W]``, a view in channels-last memory.

    Not by ``transpose`` and ``unflatten``: for a single image that leaves a batch stride which convolutions do not take for
    channels-last, and they copy the map to and fro.
    """
    return x.unflatten(1, tuple(grid)).movedim(-1, 1)


def to_tokens(x: Tensor) -> Tensor:
    """``[B, C, H, W] -> [B, H W, C]``, the inverse of :func:`to_map`."""
    return x.flatten(2).transpose(1, 2)


class TokenConv(nn.Conv2d):
    """Depthwise convolution over the grid: ``[B, N, C] -> [B, N, C]``; prefix tokens pass through unchanged.

    Without a grid, on maps: ``[B, C, H, W] -> [B, C, H, W]``.
    """

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)

    def forward(self, x: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        if grid is None:
            return super().forward(x)
        prefix = x.shape[1] - prod(grid)
        y = to_tokens(super().forward(to_map(x[:, prefix:], grid)))
        return torch.cat([x[:, :prefix], y], dim=1) if prefix else y


class PatchEmbed(nn.Module):
    """Convolution and LayerNorm on a map padded to a multiple of ``stride``: the grid is divided by ``stride``, rounding up.

    ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid.
    """

    def __init__(self, in_channels: int, channels: int, kernel_size: int, stride: int, padding: int = 0) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, channels, kernel_size, stride, padding)
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        height, width = x.shape[2:]
        stride = self.proj.stride[0]
        x = self.proj(F.pad(x, (0, -width % stride, 0, -height % stride)))
        return self.norm(to_tokens(x)), tuple(x.shape[2:])


class TokenMlp(nn.Module):
    """Linear, (depthwise convolution on the hidden width,) GELU, Linear: ``[B, N, C] -> [B, N, C]``."""

    def __init__(self, channels: int, hidden: int, conv_size: int | None = None) -> None:
        super().__init__()
        self.fc1 = TokenLinear(channels, hidden)
        self.dwconv = TokenConv(hidden, conv_size) if conv_size else None
        self.fc2 = TokenLinear(hidden, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = self.fc1(x)
        return self.fc2(F.gelu(x if self.dwconv is None else self.dwconv(x, grid)))


class TokenBlock(nn.Module):
    """``x + DropPath(attention(norm(x)))``, then ``x + DropPath(MLP(norm(x)))``: ``[B, N, C] -> [B, N, C]``.

    Args:
        channels: C.
        attention: an operator, see :mod:`mmlisa.models.attention.contract`. One with an ``mlp_conv``, a kernel
            size, gets a depthwise convolution in the MLP.
        mlp_ratio: hidden width of the MLP over C.
        mlp_conv: kernel size of a depthwise convolution in the MLP whatever the operator; None for none.
        drop_path: rate of stochastic depth.
        norm_eps: epsilon of both norms.
    """

    def __init__(
        self,
        channels: int,
        attention: nn.Module,
        *,
        mlp_ratio: float,
        mlp_conv: int | None = None,
        drop_path: float = 0.0,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=norm_eps)
        self.attn = attention
        self.norm2 = nn.LayerNorm(channels, eps=norm_eps)
        self.mlp = TokenMlp(channels, int(channels * mlp_ratio), mlp_conv or getattr(attention, "mlp_conv", None))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = add_residual(x, self.drop_path(self.attn(self.norm1(x), grid)))
        mlp, width = self.mlp, self.mlp.fc1.out_features
        if self.training or (mlp.dwconv is not None and x.shape[1] > prod(grid)):
            # Not in parts: a path is dropped per image, and prefix tokens are not on the map.
            return add_residual(x, self.drop_path(mlp(self.norm2(x), grid)))
        if mlp.dwconv is None:
            return tokenwise(lambda x: x + mlp(self.norm2(x), grid), x, width=width)

        def expand(x: Tensor) -> Tensor:
            return mlp.fc1(self.norm2(x.movedim(1, -1))).movedim(-1, 1)

        def reduce(x: Tensor) -> Tensor:
            return mlp.fc2(F.gelu(x.movedim(1, -1))).movedim(-1, 1)

        return to_tokens(add_in_bands(to_map(x, grid), [expand, mlp.dwconv, reduce], width=width))


class MapBlock(TokenBlock):
    """The block on a map: ``[B, C, H, W] -> [B, C, H, W]``."""

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        return to_map(super().forward(to_tokens(x), grid), grid)
