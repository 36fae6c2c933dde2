"""LeViT's softmax attention (Graham et al., "LeViT")."""

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers.grids import ResizeOnLoad, resize_rows, stretch
from mmlisa.models.layers.tokens import LinearNorm
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads


class OffsetBias(ResizeOnLoad):
    """One bias per head and absolute offset (|dy|, |dx|) between two tokens; resized bilinearly for other grids."""

    on_grid = ("attention_biases",)

    def __init__(self, num_heads: int, grid: Sequence[int]) -> None:
        super().__init__()
        self.grid = tuple(grid)
        self.attention_biases = nn.Parameter(torch.zeros(num_heads, prod(grid)))

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return resize_rows(saved.T, self.grid, grid, mode="bilinear", align_corners=True).T

    def forward(self, grid: Sequence[int], stride: int = 1) -> Tensor:
        """``[h, N_q, N_k]`` between every ``stride``-th token of ``grid``, and all of them."""
        biases = stretch(self.attention_biases.unflatten(1, self.grid), grid, align_corners=True)
        dy, dx = (
            (torch.arange(0, n, stride, device=biases.device)[:, None] - torch.arange(n, device=biases.device)).abs()
            for n in grid
        )
        # [h, y_q, y_k, W] -> [h, y_q, y_k, x_q, x_k] -> queries first
        return biases[:, dy][..., dx].permute(0, 1, 3, 2, 4).flatten(3, 4).flatten(1, 2)


@MODELS.register_module()
class LeViTAttention(nn.Module):
    """Softmax attention with offset biases, values twice as wide as keys, and hard-swish before the projection.

    Args:
        head_dims: width D of queries and keys, C / h / 2 where None; values have 2 D.
    """

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int], head_dims: int | None = None) -> None:
        super().__init__()
        self.num_heads, self.head_dims = num_heads, head_dims or check_heads(channels, num_heads) // 2
        self.qkv = LinearNorm(channels, 4 * num_heads * self.head_dims)
        self.bias = OffsetBias(num_heads, grid)
        self.proj = nn.Linear(2 * num_heads * self.head_dims, channels, bias=False)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        qkv = split_heads(self.qkv(x), self.num_heads)
        query, key, value = qkv.split([self.head_dims, self.head_dims, 2 * self.head_dims], dim=3)
        bias = self.bias(grid).to(query.dtype)
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.proj(F.hardswish(join_heads(y)))
