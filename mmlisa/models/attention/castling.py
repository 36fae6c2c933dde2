"""What Castling-ViT puts around an operator's function: an auxiliary branch, pooling, a residual query, and a convolution."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from mmlisa.models.layers.tokens import after_prefix, to_map, to_tokens
from mmlisa.ops import masked_softmax

from .base import HeadedAttention, join_heads, split_heads


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


class CastlingAttention(HeadedAttention):
    """Base of operators ``proj(normalise(attend(q, k, v) (+ aux)) (+ DConv(v)) (+ q))`` with ``q, k, v = (pool)(qkv(x))``.

    Prefix tokens are tokens like all others, except that their query is not added, as in MViTv2. aux is Castling-ViT's
    auxiliary branch, a masked softmax attention (You et al., Eq. 10), which helps other linear attentions as well (their
    appendix). It has no parameters: a checkpoint is the same with it and without.

    Args:
        key_dims: width of a head's queries and keys; None for d. Narrower ones are LeViT's "feature pooling" (Castling-ViT,
            Table 1), which excludes ``residual``.
        pooled: MViTv2's form without its strides: query, key and value each pass a :class:`HeadPool`.
        residual: add the query to the attended tokens (MViTv2's residual pooling, Castling-ViT's appendix B); None for the
            value of ``pooled``, and False with ``key_dims``.
        conv_size: odd length of DConv, a depthwise convolution of each head's values along the flattened tokens; None for none.
        aux: train with the auxiliary branch.
        aux_in_eval: keep it in eval mode, to see what dropping it costs.
        epsilon: threshold of its mask; :class:`mmlisa.training.recipes.CastlingHook` may change this attribute.

    Attributes:
        mask_count: non-zero entries per image in the last mask of the auxiliary branch, over all heads; None before the first.
        mask_size: entries of that mask per image.
    """

    takes_rotary = True

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        head_dims: int | None = None,
        key_dims: int | None = None,
        qkv_bias: bool = True,
        pooled: bool = False,
        residual: bool | None = None,
        conv_size: int | None = None,
        aux: bool = False,
        aux_in_eval: bool = False,
        epsilon: float = 0.02,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, head_dims=head_dims, key_dims=key_dims, qkv_bias=qkv_bias)
        narrow = key_dims or self.head_dims
        self.widths = [narrow, narrow, self.head_dims]  # of query, key and value
        self.pool = nn.ModuleList(map(HeadPool, self.widths)) if pooled else None
        self.residual = pooled and not key_dims if residual is None else residual
        self.dconv = None
        if conv_size:
            self.dconv = nn.Conv2d(
                num_heads, num_heads, (conv_size, 1), padding=(conv_size // 2, 0), groups=num_heads, bias=False
            )
        self.aux, self.aux_in_eval = aux, aux_in_eval
        self.epsilon = float(epsilon)
        self.mask_count: Tensor | None = None
        self.mask_size = 0

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        qkv = self.qkv(x).split([self.num_heads * width for width in self.widths], dim=2)
        query, key, value = (split_heads(t, self.num_heads) for t in qkv)
        if self.pool is not None:
            query, key, value = (pool(t, grid) for pool, t in zip(self.pool, (query, key, value), strict=True))
        turned, key = self.turn(query, key, grid)
        y = self.attend(turned, key, value, grid)
        if self.aux and (self.training or self.aux_in_eval):
            sparse, mask = masked_softmax(turned, key, value, self.epsilon)
            self.mask_count, self.mask_size = mask.sum() / max(len(mask), 1), mask.shape[1:].numel()
            y = y + sparse
        y = self.normalise(y)
        if self.dconv is not None:
            y = y + self.dconv(value)
        if self.residual:
            prefix = query.shape[2] - prod(grid)
            y = y + after_prefix(query[:, :, prefix:], prefix)
        return self.proj(join_heads(y).to(value.dtype))

    def normalise(self, y: Tensor) -> Tensor:
        """Normalise the sum of the function and the auxiliary branch, ``[B, h, N, d]``; the identity by default."""
        return y


def castling_operators(model: nn.Module) -> dict[str, CastlingAttention]:
    """Return the operators of ``model`` that have an auxiliary branch, by name and in order."""
    return {name: m for name, m in model.named_modules() if isinstance(m, CastlingAttention) and m.aux}


def drop_aux(model: nn.Module) -> int:
    """Drop every auxiliary branch of ``model`` for good, in training too (castling), and return their number."""
    operators = castling_operators(model)
    for operator in operators.values():
        operator.aux = False
    return len(operators)
