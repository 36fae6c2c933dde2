"""Structure-aware attention, the exact ancestors of LiSA, as token mixers."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import RelativePosition
from mmlisa.ops import structure_aware, weighted_attention
from mmlisa.ops.context import at_least_fp32, layer_dtype
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens
from .heads import join_heads, split_heads

FORMS = ("weights", "dot", "hadamard")


@MODELS.register_module()
class StructureAwareAttention(nn.Module):
    """SA of Kwon et al. (journal version, Sec. 4), O(N^2); the rows of Table 3b.

    Args:
        channels: channels C.
        num_heads: heads h.
        grid: the pretraining grid, the size of the relative positions.
        form: ``'weights'`` multiplies the correlation by relative positions (Eq. 9); ``'dot'`` encodes it into structural
            patterns and generates a kernel from them (Eq. 10); ``'hadamard'`` does so channel by channel (Eq. 11).
        num_patterns: structural patterns D of Eqs. 10 and 11.
        per_head: relative positions of Eq. 9 per head instead of one for all.
        encoding_bias: the bias B^a of the first version, in Eqs. 10 and 11.
        qkv_bias: bias in the query, key and value projection.

    Raises:
        ValueError: heads that do not divide the channels, an unknown ``form``; at the call, tokens that are not those of the
            grid.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        form: str = "hadamard",
        num_patterns: int = 16,
        per_head: bool = False,
        encoding_bias: bool = False,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        if form not in FORMS:
            raise ValueError(f"form is {form!r}; it must be one of {FORMS}")
        self.num_heads, self.form = num_heads, form
        width = check_heads(channels, num_heads)
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        if form == "weights":
            self.relative = RelativePosition((num_heads,) if per_head else (), grid)
            return
        shape_a = (num_patterns,) if form == "dot" else (width, num_patterns)
        self.relative_a = RelativePosition(shape_a, grid)
        self.relative_b = RelativePosition((num_patterns,), grid)
        self.bias = nn.Parameter(torch.empty(width, num_patterns))
        self.bias_a = nn.Parameter(torch.zeros(width, num_patterns)) if encoding_bias else None
        nn.init.trunc_normal_(self.bias, std=0.02)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        query, key = (F.normalize(at_least_fp32(t), dim=3) for t in (query, key))
        if self.form == "weights":
            y = weighted_attention(query, key, value, self.relative(grid))
        else:
            relative_a, relative_b = self.relative_a(grid), self.relative_b(grid)
            y = structure_aware(query, key, value, relative_a, relative_b, self.bias, self.bias_a)
        return self.proj(join_heads(y).to(layer_dtype(x, self)))
