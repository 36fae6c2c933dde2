"""Layers that several linear attentions have around their function: locally enhanced positions and a gated output."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn

from mmlisa.ops import beyond_fp16

from .tokens import TokenConv, after_prefix


class LePE(TokenConv):
    """Locally enhanced positional encoding: a depthwise convolution of the values (Dong et al., "CSwin", Eq. 7).

    Prefix tokens have no position, and get zeros.
    """

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        prefix = x.shape[1] - prod(grid)
        return after_prefix(super().forward(x[:, prefix:], grid), prefix)


class GatedProjection(nn.Module):
    """``Linear(Linear(x) * y)``: the output projection of an operator behind a gate that depends on its input.

    The gate grows with the input, and so does what it multiplies: under fp16 the product is taken and projected in fp32.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Linear(channels, channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The operator's input and result, ``[B, N, C]`` each -> ``[B, N, C]``."""
        gate = self.gate(x)
        context, dtype = beyond_fp16(x, self)
        with context:
            return self.proj(gate.to(dtype) * y.to(dtype))
