"""Heads of tokens: split, joined, pooled."""

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
        heads, prefix = x.shape[1], x.shape[2] - prod(grid)
        # The heads are channels, not images: runtimes for phones have no batches.
        maps = x[:, :, prefix:].transpose(2, 3).flatten(1, 2).unflatten(2, tuple(grid))
        weight = self.conv.weight.repeat(heads, 1, 1, 1)
        maps = F.conv2d(maps, weight, None, self.conv.stride, self.conv.padding, groups=weight.shape[0])
        y = maps.flatten(2).unflatten(1, (heads, -1)).transpose(2, 3)
        return self.norm(torch.cat([x[:, :, :prefix].to(y.dtype), y], dim=2) if prefix else y)
