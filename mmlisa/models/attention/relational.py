"""Relational self-attention as a token mixer, O(N^2)."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import RelativePosition
from mmlisa.ops import relational
from mmlisa.ops.context import at_least_fp32, layer_dtype
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens
from .heads import join_heads, split_heads


@MODELS.register_module()
class RelationalSelfAttention(nn.Module):
    """RSA (Kim et al., "Relational Self-Attention", NeurIPS 2021) over the whole grid.

    Its relational kernel is factorised, H = H1 H2, through ``num_patterns`` numbers; queries, keys and values are
    L2-normalised, since nothing else bounds a product of five of them.

    Args:
        channels: channels C.
        num_heads: heads h, RSA's multi-query.
        grid: the pretraining grid, the size of the relative positions.
        num_patterns: rank D of the relational kernel.
        qkv_bias: bias in the query, key and value projection.

    Raises:
        ValueError: heads that do not divide the channels; at the call, tokens that are not those of the grid.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        num_patterns: int = 16,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        width = check_heads(channels, num_heads)
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.basic = RelativePosition((width,), grid)
        self.encode = RelativePosition((width, num_patterns), grid)
        self.decode = RelativePosition((num_patterns,), grid)
        self.context = RelativePosition((width,), grid)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        heads = (split_heads(at_least_fp32(t), self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        query, key, value = (F.normalize(t, dim=3) for t in heads)
        positions = (p(grid) for p in (self.basic, self.encode, self.decode, self.context))
        y = relational(query, key, value, *positions)
        return self.proj(join_heads(y).to(layer_dtype(x, self)))
