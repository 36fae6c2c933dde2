"""The base of operators that are a function over ``[B, h, N, d]`` between two projections."""

from abc import abstractmethod
from collections.abc import Sequence
from math import prod

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.ops import layer_dtype, masked_softmax

from .base import MixedPrecisionOperator, check_heads
from .heads import HeadPool, join_heads, split_heads


class ProjectedAttention(MixedPrecisionOperator):
    """Base of operators ``proj(normalise(attend(q, k, v) (+ aux)) (+ DConv(v)) (+ q))`` with ``q, k, v = (pool)(qkv(x))``.

    Prefix tokens are tokens like all others, except that their query is not added, as in MViTv2. aux is Castling-ViT's
    auxiliary branch, a masked softmax attention (You et al., Eq. 10), which helps other linear attentions as well (their
    appendix). It has no parameters: a checkpoint is the same with it and without.

    Args:
        channels: channels C.
        num_heads: heads h.
        grid: the pretraining grid; nothing here depends on it.
        head_dims: width d of a head; None for C / h.
        key_dims: width of a head's queries and keys; None for d. Narrower ones are LeViT's "feature pooling" (Castling-ViT,
            Table 1), which excludes ``residual``.
        qkv_bias: bias in the query, key and value projection.
        pooled: MViTv2's form without its strides: query, key and value each pass a :class:`HeadPool`.
        residual: add the query to the attended tokens (MViTv2's residual pooling, Castling-ViT's appendix B); None for the
            value of ``pooled``, and False with ``key_dims``.
        conv_size: odd length of DConv, a depthwise convolution of each head's values along the flattened tokens; None for none.
        aux: train with the auxiliary branch.
        aux_in_eval: keep it in eval mode, to see what dropping it costs.
        epsilon: threshold of its mask, an attribute that a schedule may change (:class:`mmlisa.training.castling.CastlingHook`).

    Attributes:
        mask_count: non-zero entries per image in the last mask of the auxiliary branch, over all heads; None before the first.
        mask_size: entries of that mask per image.

    Raises:
        ValueError: heads that do not divide the channels (without ``head_dims``); at the call, fewer tokens than the grid has.
    """

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
        super().__init__()
        self.num_heads = num_heads
        head_dims = head_dims or check_heads(channels, num_heads)
        self.dims = [key_dims or head_dims, key_dims or head_dims, head_dims]  # of query, key and value
        self.qkv = nn.Linear(channels, num_heads * sum(self.dims), bias=qkv_bias)
        self.pool = nn.ModuleList(map(HeadPool, self.dims)) if pooled else None
        self.residual = pooled and not key_dims if residual is None else residual
        self.dconv = None
        if conv_size:
            self.dconv = nn.Conv2d(
                num_heads, num_heads, (conv_size, 1), padding=(conv_size // 2, 0), groups=num_heads, bias=False
            )
        self.proj = nn.Linear(num_heads * head_dims, channels)
        self.aux, self.aux_in_eval = aux, aux_in_eval
        self.epsilon = float(epsilon)
        self.mask_count: Tensor | None = None
        self.mask_size = 0

    def drop_aux(self) -> None:
        """Drop the auxiliary branch, in training too (castling)."""
        self.aux = False

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The operator's function, over ``[B, h, N, d]``."""

    def normalise(self, y: Tensor) -> Tensor:
        """Normalise the sum of the function and the auxiliary branch, ``[B, h, N, d]``; the identity by default."""
        return y

    def attend_sparsely(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The auxiliary branch, over ``[B, h, N, d]``."""
        y, mask = masked_softmax(query, key, value, self.epsilon)
        self.mask_count, self.mask_size = mask.sum() / max(len(mask), 1), mask.shape[1:].numel()
        return y

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        qkv = self.qkv(x).split([self.num_heads * dims for dims in self.dims], dim=2)
        query, key, value = (split_heads(t, self.num_heads) for t in qkv)
        if self.pool is not None:
            query, key, value = (pool(t, grid) for pool, t in zip(self.pool, (query, key, value), strict=True))
        y = self.attend(query, key, value)
        if self.aux and (self.training or self.aux_in_eval):
            y = y + self.attend_sparsely(query, key, value)
        y = self.normalise(y)
        if self.dconv is not None:
            y = y + self.dconv(value)
        if self.residual:
            prefix = query.shape[2] - prod(grid)
            y = y + (F.pad(query[:, :, prefix:], (0, 0, prefix, 0)) if prefix else query)
        return self.proj(join_heads(y).to(layer_dtype(x, self)))


def castling_operators(model: nn.Module) -> dict[str, ProjectedAttention]:
    """Return the operators of ``model`` that have an auxiliary branch, by name and in order."""
    return {name: m for name, m in model.named_modules() if isinstance(m, ProjectedAttention) and m.aux}


def drop_aux(model: nn.Module) -> int:
    """Drop every auxiliary branch of ``model`` for good, and return their number."""
    operators = castling_operators(model)
    for operator in operators.values():
        operator.drop_aux()
    return len(operators)
