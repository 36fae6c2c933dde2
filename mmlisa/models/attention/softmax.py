"""Softmax attention, the operator that all others are compared with."""

from collections.abc import Sequence
from math import prod

import torch.nn.functional as F
from torch import Tensor

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import RelativePosition
from mmlisa.registry import MODELS

from .base import HeadedAttention
from .castling import CastlingAttention


@MODELS.register_module()
class SoftmaxAttention(HeadedAttention):
    """Self-attention (Vaswani et al.), O(N^2), by PyTorch's fused kernels; prefix tokens are tokens like all others.

    Args:
        channels, num_heads, head_dims, qkv_bias, proj_bias: see :class:`HeadedAttention`.
        grid: the pretraining grid, the size of the relative positions.
        rpe: relative position embedding, added to the logits: None, ``'shared'`` by the heads, or one per ``'head'``.
            Prefix tokens have none.

    Raises:
        UserError: see :class:`HeadedAttention`; an unknown ``rpe``.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        head_dims: int | None = None,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        rpe: str | None = None,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, head_dims=head_dims, qkv_bias=qkv_bias, proj_bias=proj_bias)
        if rpe not in (None, "shared", "head"):
            raise UserError(f"rpe is {rpe!r}; it must be None, 'shared' or 'head'")
        self.rpe = RelativePosition((num_heads,) if rpe == "head" else (), grid) if rpe else None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        bias = None
        if self.rpe is not None:
            prefix = query.shape[2] - prod(grid)
            bias = F.pad(self.rpe(grid), (prefix, 0, prefix, 0)).to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)


@MODELS.register_module()
class PooledSoftmaxAttention(CastlingAttention):
    """Softmax attention, quadratic in N, in the pooled form: what LCNet-ViT and ESNet-ViT have before they are castled.

    Args:
        channels, num_heads, options: see :class:`CastlingAttention`.
        key_stride: stride of the pooling of key and value, "token pooling" (MViTv2; Castling-ViT, Table 1).
    """

    function = staticmethod(F.scaled_dot_product_attention)

    def __init__(self, channels: int, num_heads: int, *, key_stride: int = 1, **options) -> None:
        super().__init__(channels, num_heads, pooled=True, **options)
        for pool in self.pool[1:]:
            pool.conv.stride = (key_stride, key_stride)
