"""MILA's linear attention as a token mixer."""

from collections.abc import Sequence

from torch import Tensor, nn

from mmlisa.models.layers.gated import LePE
from mmlisa.ops import mila
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads


@MODELS.register_module()
class MILAAttention(nn.Module):
    """Linear attention with rotary positions, plus a depthwise convolution of the values (Han et al., MILA).

    The values are the tokens themselves, and there is no output projection: both belong to MILA's block.

    Args:
        channels: channels C, a multiple of 4.

    Raises:
        UserError: heads that do not divide the channels, channels that are not a multiple of 4; at the call, fewer tokens than
            the grid has.
    """

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int], qkv_bias: bool = True) -> None:
        super().__init__()
        check_heads(channels, num_heads)
        self.num_heads = num_heads
        self.qk = nn.Linear(channels, 2 * channels, bias=qkv_bias)
        self.lepe = LePE(channels, 3)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        check_tokens(x, grid, takes_prefix=True)
        query, key, value = (split_heads(t, self.num_heads) for t in (*self.qk(x).chunk(2, dim=2), x))
        return join_heads(mila(query, key, value, grid)) + self.lepe(x, grid)
