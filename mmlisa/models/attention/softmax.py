"""Softmax attention, the operator that all others are compared with, and its forms with convolved or pooled tokens."""

from collections.abc import Sequence
from functools import partial
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import RelativePosition
from mmlisa.models.layers.tokens import CONVOLUTIONS, to_map, to_tokens
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads
from .castling import CastlingAttention


class KeylessBias(nn.Linear):
    """A projection to ``[q | k | v]`` of equal widths whose bias counts for q and v only: ``[..., C] -> [..., 3 C]``."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.bias.chunk(3)
        return F.linear(x, self.weight, torch.cat([query, torch.zeros_like(key), value]))


@MODELS.register_module()
class SoftmaxAttention(HeadedAttention):
    """Self-attention (Vaswani et al.), O(N^2), by PyTorch's fused kernels; prefix tokens are tokens like all others.

    Args:
        rpe: relative position embedding, added to the logits: None, ``'shared'`` by the heads, or one per ``'head'``.
            Prefix tokens have none. Anything else is a UserError.
        key_bias: False for a projection whose third for the keys has no bias, as DINOv3's.
    """

    takes_rotary = True

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
        key_bias: bool = True,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, head_dims=head_dims, qkv_bias=qkv_bias, proj_bias=proj_bias)
        if rpe not in (None, "shared", "head"):
            raise UserError(f"rpe is {rpe!r}; it must be None, 'shared' or 'head'")
        if not key_bias:
            self.qkv = KeylessBias(self.qkv.in_features, self.qkv.out_features)
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
        key_stride: stride of the pooling of key and value, "token pooling" (MViTv2; Castling-ViT, Table 1).
    """

    takes_rotary = False  # the keys have a grid of their own
    function = staticmethod(F.scaled_dot_product_attention)

    def __init__(self, channels: int, num_heads: int, *, key_stride: int = 1, **options) -> None:
        super().__init__(channels, num_heads, pooled=True, **options)
        for pool in self.pool[1:]:
            pool.conv.stride = (key_stride, key_stride)


@MODELS.register_module()
class ConvolutionalAttention(HeadedAttention):
    """Softmax attention on queries, keys and values that passed a depthwise convolution each (after MViTv2, Li et al. 2022).

    Args:
        kernel_size: of the convolutions.
        stride: of the keys' and values' convolutions; the queries keep the grid.
    """

    takes_prefix = False

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        kernel_size: int = 3,
        stride: int = 1,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        conv = partial(CONVOLUTIONS[len(grid)], channels, channels, kernel_size, groups=channels, bias=False)
        self.convs = nn.ModuleList(conv(stride=s, padding=kernel_size // 2) for s in (1, stride, stride))

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        maps = to_map(self.qkv(x), grid).chunk(3, dim=1)
        tokens = (to_tokens(conv(m)) for conv, m in zip(self.convs, maps, strict=True))
        query, key, value = (split_heads(t, self.num_heads) for t in tokens)
        return self.proj(join_heads(F.scaled_dot_product_attention(query, key, value)))
