"""The softmax attention of PVT and PVTv2, on keys and values of a reduced map."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers.tokens import to_map, to_tokens
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads


@MODELS.register_module()
class SpatialReductionAttention(nn.Module):
    """Spatial-reduction attention (Wang et al., "Pyramid Vision Transformer", Eqs. 1-3).

    Args:
        sr_ratio: keys and values come from a map that a strided convolution reduces by this in both axes.
    """

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], sr_ratio: int = 1, qkv_bias: bool = True
    ) -> None:
        super().__init__()
        check_heads(channels, num_heads)
        self.num_heads, self.sr_ratio = num_heads, sr_ratio
        self.q = nn.Linear(channels, channels, bias=qkv_bias)
        self.kv = nn.Linear(channels, 2 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        self.sr, self.norm = None, None
        if sr_ratio > 1:
            self.sr = nn.Conv2d(channels, channels, sr_ratio, sr_ratio)
            self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        reduced = x if self.sr is None else self.norm(to_tokens(self.sr(to_map(x, grid))))
        query, key, value = (split_heads(t, self.num_heads) for t in (self.q(x), *self.kv(reduced).chunk(2, dim=2)))
        return self.proj(join_heads(F.scaled_dot_product_attention(query, key, value)))
