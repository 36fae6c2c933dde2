"""Polarity-aware linear attention (Meng et al., "PolaFormer")."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from mmlisa.models.layers.grids import PositionsOnLoad
from mmlisa.models.layers.tokens import SharedTokenConv, after_prefix
from mmlisa.ops import beyond_fp16, polarity_aware
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads


@MODELS.register_module()
class PolarityAwareAttention(PositionsOnLoad):
    """``proj((attend(q, k, v) + DWC(v)) * g)``; q, k, v and the gate g are projections, and a learned position is added to k.

    Prefix tokens attend too; they have no position and skip the convolution. The width of a head must be even (UserError).

    Args:
        kernel_size: of the depthwise convolution on the values; its d kernels are shared by all heads.
    """

    on_grid = ("positional_encoding",)

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], kernel_size: int = 5, qkv_bias: bool = True
    ) -> None:
        super().__init__()
        self.num_heads, width = num_heads, check_heads(channels, num_heads)
        self.qkvg = nn.Linear(channels, 4 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        self.power = nn.Parameter(torch.zeros(1, num_heads, 1, width))
        self.scale = nn.Parameter(torch.zeros(1, 1, channels))
        self.grid = tuple(grid)
        self.positional_encoding = nn.Parameter(torch.zeros(1, prod(grid), channels))
        self.dwc = SharedTokenConv(width, kernel_size)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        prefix = check_tokens(x, grid, takes_prefix=True)
        query, key, value, gate = self.qkvg(x).chunk(4, dim=2)
        key = key + after_prefix(self.resize(self.positional_encoding, grid), prefix)
        heads = (split_heads(t, self.num_heads) for t in (query, key, value))
        y = polarity_aware(*heads, self.power[0, :, 0], self.scale.view(self.num_heads, -1))
        y = join_heads(y) + after_prefix(self.dwc(value[:, prefix:], grid), prefix)
        # The gate is not bounded: its product leaves the range of fp16.
        context, dtype = beyond_fp16(x, self)
        with context:
            return self.proj(y.to(dtype) * gate.to(dtype))
