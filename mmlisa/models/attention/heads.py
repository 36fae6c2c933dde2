"""Heads of tokens: split, joined, pooled."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from mmlisa.models.layers import to_map, to_tokens


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``[B, N, C] -> [B, h, N, d]``, a view."""
    return x.unflatten(2, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``[B, h, N, d] -> [B, N, C]``."""
    return x.transpose(1, 2).flatten(2)


class HeadPool(nn.Module):
    """Depthwise convolution over the grid, shared by the heads, then LayerNorm, on ``[B, h, N, d]`` (MViTv2's pooling).

    Prefix tokens skip the convolution, not the norm.
    """

    def __init__(self, head_dims: int, stride: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(head_dims, head_dims, 3, stride, padding=1, groups=head_dims, bias=False)
        self.norm = nn.LayerNorm(head_dims, eps=eps)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        prefix = x.shape[2] - prod(grid)
        y = to_tokens(self.conv(to_map(x[:, :, prefix:].flatten(0, 1), grid))).unflatten(0, x.shape[:2])
        if prefix:
            y = torch.cat([x[:, :, :prefix].to(y.dtype), y], dim=2)
        return self.norm(y)
