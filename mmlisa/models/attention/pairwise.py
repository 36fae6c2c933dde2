"""Operators with a learned number for each pair of tokens, O(N²): LiSA's exact ancestors, lambda convolution, RSA."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import RelativePosition
from mmlisa.ops import lambda_convolution, relational, structure_aware, weighted_attention
from mmlisa.ops.context import at_least_fp32
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads

FORMS = ("weights", "dot", "hadamard")


@MODELS.register_module()
class StructureAwareAttention(HeadedAttention):
    """SA of Kwon et al. (journal version, Sec. 4), O(N^2); the rows of Table 3b.

    Args:
        form: ``'weights'`` multiplies the correlation by relative positions (Eq. 9); ``'dot'`` encodes it into structural
            patterns and generates a kernel from them (Eq. 10); ``'hadamard'`` does so channel by channel (Eq. 11).
        num_patterns: structural patterns D of Eqs. 10 and 11.
        per_head: relative positions of Eq. 9 per head instead of one for all.
        encoding_bias: the bias B^a of the first version, in Eqs. 10 and 11.
    """

    takes_prefix = False

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
        proj_bias: bool = True,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias, proj_bias=proj_bias)
        if form not in FORMS:
            raise UserError(f"form is {form!r}; it must be one of {FORMS}")
        self.form, width = form, self.head_dims
        if form == "weights":
            self.relative = RelativePosition((num_heads,) if per_head else (), grid)
            return
        shape_a = (num_patterns,) if form == "dot" else (width, num_patterns)
        self.relative_a = RelativePosition(shape_a, grid)
        self.relative_b = RelativePosition((num_patterns,), grid)
        self.bias = nn.Parameter(torch.empty(width, num_patterns))
        self.bias_a = nn.Parameter(torch.zeros(width, num_patterns)) if encoding_bias else None
        nn.init.trunc_normal_(self.bias, std=0.02)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        query, key = (F.normalize(at_least_fp32(t), dim=3) for t in (query, key))
        if self.form == "weights":
            return weighted_attention(query, key, value, self.relative(grid))
        relative_a, relative_b = self.relative_a(grid), self.relative_b(grid)
        return structure_aware(query, key, value, relative_a, relative_b, self.bias, self.bias_a)


@MODELS.register_module()
class LambdaConvolution(HeadedAttention):
    """Lambda layer (Bello, "LambdaNetworks", 2021) over the whole grid: one lambda per head, batch norm on queries and values.

    It has no output projection: LambdaNetworks has none, and the parameters of LiSA's Table 3a leave no room for one.
    """

    takes_prefix = False

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int]) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=False, proj_bias=None)
        self.norm_query, self.norm_value = nn.BatchNorm1d(channels), nn.BatchNorm1d(channels)
        self.relative = RelativePosition((self.head_dims,), grid)

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        query, key, value = self.qkv(x).transpose(1, 2).chunk(3, dim=1)
        channels = (self.norm_query(query), key, self.norm_value(value))
        heads = (split_heads(t.transpose(1, 2), self.num_heads) for t in channels)
        return join_heads(lambda_convolution(*heads, self.relative(grid))).to(x.dtype)


@MODELS.register_module()
class RelationalSelfAttention(HeadedAttention):
    """RSA (Kim et al., "Relational Self-Attention", NeurIPS 2021) over the whole grid.

    Queries, keys and values are normalised, since nothing else bounds a product of five of them. The heads are RSA's multi-query.

    Args:
        num_patterns: rank D of the relational kernel, H = H1 H2.
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
        positions = self.basic(grid), self.encode(grid), self.decode(grid), self.context(grid)
        return relational(*normed, *positions).to(value.dtype)
