"""The pre-norm transformer block of ViT, DeiT and the hybrids, around any attention operator."""

from collections.abc import Sequence
from math import prod

import torch
from timm.layers import DropPath
from torch import Tensor, nn


class TokenMlp(nn.Module):
    """Linear, (depthwise convolution,) GELU, Linear, on ``[B, N, C]``; prefix tokens pass by the convolution."""

    def __init__(
        self, channels: int, hidden: int, out_channels: int | None = None, conv_size: int | None = None
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.conv = nn.Conv2d(hidden, hidden, conv_size, padding=conv_size // 2, groups=hidden) if conv_size else None
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, out_channels or channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = self.fc1(x)
        if self.conv is not None:
            x = over_grid(self.conv, x, grid)
        return self.fc2(self.act(x))


class TransformerBlock(nn.Module):
    """``x + DropPath(attn(norm(x)))``, then ``x + DropPath(MLP(norm(x)))``, on ``[B, N, C]``; named as timm's.

    Args:
        channels: C.
        attn: an operator of mmlisa.
        mlp_ratio: hidden width of the MLP over C.
        conv_size: kernel of the MLP's depthwise convolution; None for none.
        drop_path: rate of stochastic depth.
    """

    def __init__(
        self,
        channels: int,
        attn: nn.Module,
        *,
        mlp_ratio: float,
        conv_size: int | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = attn
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = TokenMlp(channels, int(channels * mlp_ratio), conv_size=conv_size)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x), grid))


class MapBlock(TransformerBlock):
    """A transformer block on ``[B, C, H, W]``."""

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        return to_map(super().forward(to_tokens(x), grid), grid)


def over_grid(module: nn.Module, x: Tensor, grid: Sequence[int]) -> Tensor:
    """Runs a size-keeping ``module`` over the map of the last ``prod(grid)`` tokens of ``[B, N, C]``."""
    n = prod(grid)
    tokens = to_tokens(module(to_map(x[:, -n:], grid)))
    return tokens if n == x.shape[1] else torch.cat([x[:, :-n], tokens], dim=1)


def to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, N, C] -> [B, C, *grid]``."""
    return x.transpose(1, 2).unflatten(2, tuple(grid))


def to_tokens(x: Tensor) -> Tensor:
    """``[B, C, *grid] -> [B, N, C]``."""
    return x.flatten(2).transpose(1, 2)
