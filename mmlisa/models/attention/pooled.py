"""MViTv2's own attention, which Castling-MViTv2 keeps where it shrinks (Li et al., "MViTv2")."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import ResizeOnLoad
from mmlisa.ops.context import divide_up

from .heads import HeadPool, join_heads, split_heads


class RelativeBias(ResizeOnLoad):
    """MViTv2's decomposed relative positions: ``q_i · (R^h_{dy} + R^w_{dx})``, for grids of any size.

    The distances between queries and keys are measured on the finer of their two grids, and mapped to the pretraining
    grid's by interpolating the table.
    """

    on_grid = ("rel_pos_h", "rel_pos_w")

    def __init__(self, head_dims: int, side: int) -> None:
        super().__init__()
        self.rel_pos_h = nn.Parameter(torch.empty(2 * side - 1, head_dims))
        self.rel_pos_w = nn.Parameter(torch.empty(2 * side - 1, head_dims))
        nn.init.trunc_normal_(self.rel_pos_h, std=0.02)
        nn.init.trunc_normal_(self.rel_pos_w, std=0.02)

    def resize_parameter(self, theirs: Tensor, ours: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return _resize(theirs, len(ours))

    def forward(self, query: Tensor, query_grid: Sequence[int], key_grid: Sequence[int]) -> Tensor:
        """``query [B, h, N_q, d]`` -> logits ``[B, h, N_q, N_k]``."""
        on_map = query.unflatten(2, tuple(query_grid))
        rel_h, rel_w = (
            self._between(table, n, m)
            for table, n, m in zip((self.rel_pos_h, self.rel_pos_w), query_grid, key_grid, strict=True)
        )
        along_h = torch.einsum("bnhwc,hkc->bnhwk", on_map, rel_h.to(query.dtype))
        along_w = torch.einsum("bnhwc,wkc->bnhwk", on_map, rel_w.to(query.dtype))
        return (along_h[..., None] + along_w[..., None, :]).flatten(4, 5).flatten(2, 3)

    @staticmethod
    def _between(table: Tensor, queries: int, keys: int) -> Tensor:
        """``[N_q, N_k, d]``, the table's entries for all pairs along an axis."""
        length = 2 * max(queries, keys) - 1
        if len(table) != length:
            table = _resize(table, length)
        q_step, k_step = max(keys / queries, 1.0), max(queries / keys, 1.0)
        offset = torch.arange(queries, device=table.device)[:, None] * q_step
        offset = offset - torch.arange(keys, device=table.device) * k_step + (keys - 1) * k_step
        return table[offset.long().clamp(0, length - 1)]


def _resize(table: Tensor, length: int) -> Tensor:
    """``[any, d] -> [length, d]``, as mmpretrain's MViT."""
    return F.interpolate(table.T[None], size=length, mode="linear", align_corners=False)[0].T


class PooledAttention(nn.Module):
    """MViTv2's own attention: queries, keys and values pooled by strided depthwise convolutions, relative positions, + q."""

    def __init__(
        self, in_channels: int, channels: int, num_heads: int, side: int, stride_q: int, stride_kv: int
    ) -> None:
        super().__init__()
        self.num_heads, self.stride_q, self.stride_kv = num_heads, stride_q, stride_kv
        head_dims = channels // num_heads
        self.qkv = nn.Linear(in_channels, 3 * channels)
        self.pool_q, self.pool_k, self.pool_v = (
            HeadPool(head_dims, s, eps=1e-6) for s in (stride_q, stride_kv, stride_kv)
        )
        self.bias = RelativeBias(head_dims, max(side // stride_q, side // stride_kv))
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        query, key, value = self.pool_q(query, grid), self.pool_k(key, grid), self.pool_v(value, grid)
        query_grid, key_grid = ([divide_up(n, stride) for n in grid] for stride in (self.stride_q, self.stride_kv))
        bias = self.bias(query, query_grid, key_grid)
        y = query + F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        return self.proj(join_heads(y))
