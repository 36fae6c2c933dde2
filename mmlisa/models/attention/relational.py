"""Relational self-attention as a token mixer, O(N^2)."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from mmlisa.models.layers.grids import RelativePosition
from mmlisa.ops import relational
from mmlisa.ops.context import at_least_fp32
from mmlisa.registry import MODELS

from .base import HeadedAttention


@MODELS.register_module()
class RelationalSelfAttention(HeadedAttention):
    """RSA (Kim et al., "Relational Self-Attention", NeurIPS 2021) over the whole grid.

    Its relational kernel is factorised, H = H1 H2, through ``num_patterns`` numbers; queries, keys and values are
    L2-normalised, since nothing else bounds a product of five of them.

    Args:
        channels, qkv_bias: see :class:`HeadedAttention`.
        num_heads: heads h, RSA's multi-query.
        grid: the pretraining grid, the size of the relative positions.
        num_patterns: rank D of the relational kernel.
    """

    takes_prefix = False

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], num_patterns: int = 16, qkv_bias: bool = True
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        self.basic = RelativePosition((self.head_dims,), grid)
        self.encode = RelativePosition((self.head_dims, num_patterns), grid)
        self.decode = RelativePosition((num_patterns,), grid)
        self.context = RelativePosition((self.head_dims,), grid)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        normed = [F.normalize(at_least_fp32(t), dim=3) for t in (query, key, value)]
        positions = (position(grid) for position in (self.basic, self.encode, self.decode, self.context))
        return relational(*normed, *positions).to(value.dtype)
