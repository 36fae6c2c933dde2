"""Softmax attention, the operator that all others are compared with."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import RelativePosition
from mmlisa.registry import MODELS

from .base import check_heads, count_prefix
from .heads import join_heads, split_heads
from .projected import ProjectedAttention


@MODELS.register_module()
class SoftmaxAttention(nn.Module):
    """Self-attention (Vaswani et al.), O(N^2), by PyTorch's fused kernels; prefix tokens are tokens like all others.

    Args:
        channels: channels C.
        num_heads: heads h.
        grid: the pretraining grid, the size of the relative positions.
        head_dims: width of a head; None for C / h.
        qkv_bias: bias in the query, key and value projection.
        rpe: relative position embedding, added to the logits: None, ``'shared'`` by the heads, or one per ``'head'``.
            Prefix tokens have none.

    Raises:
        ValueError: heads that do not divide the channels (without ``head_dims``), or an unknown ``rpe``; at the call,
            fewer tokens than the grid has.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        head_dims: int | None = None,
        qkv_bias: bool = True,
        rpe: str | None = None,
    ) -> None:
        super().__init__()
        if rpe not in (None, "shared", "head"):
            raise ValueError(f"rpe is {rpe!r}; it must be None, 'shared' or 'head'")
        width = num_heads * (head_dims or check_heads(channels, num_heads))
        self.num_heads = num_heads
        self.qkv = nn.Linear(channels, 3 * width, bias=qkv_bias)
        self.rpe = RelativePosition((num_heads,) if rpe == "head" else (), grid) if rpe else None
        self.proj = nn.Linear(width, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        prefix = count_prefix(x, grid)
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        bias = None
        if self.rpe is not None:
            bias = F.pad(self.rpe(grid), (prefix, 0, prefix, 0)).to(query.dtype)
        return self.proj(join_heads(F.scaled_dot_product_attention(query, key, value, attn_mask=bias)))


@MODELS.register_module()
class PooledSoftmaxAttention(ProjectedAttention):
    """Softmax attention, quadratic in N, in the pooled form: what LCNet-ViT and ESNet-ViT have before they are castled.

    Args:
        channels: channels C.
        num_heads: heads h.
        key_stride: stride of the pooling of key and value, "token pooling" (MViTv2; Castling-ViT, Table 1).
        **options: see :class:`ProjectedAttention`.
    """

    def __init__(self, channels: int, num_heads: int, *, key_stride: int = 1, **options) -> None:
        super().__init__(channels, num_heads, pooled=True, **options)
        for pool in self.pool[1:]:
            pool.conv.stride = (key_stride, key_stride)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value)
