"""The inception mixer: pooling, convolution and attention side by side, on grids of one to three axes."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.tokens import to_map, to_tokens, token_conv
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads

_MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


@MODELS.register_module()
class InceptionMixer(nn.Module):
    """Max pooling, depthwise convolution and attention on a share of the channels each (Si et al., "Inception Transformer").

    ``Y = concat(Linear(MaxPool(x_1)), DWConv(Linear(x_2)), Attention(x_3))``, then ``Linear(Y + DWConv(Y))``; the third share
    is ``attention_heads`` heads wide, the other two halve the rest.

    Args:
        num_heads: heads that all the channels would have.
        attention_heads: heads that attend; None for half of them.

    Raises:
        UserError: heads that do not divide the channels, more attending heads than heads, or an odd rest; at the call,
            tokens that are not those of the grid.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        attention_heads: int | None = None,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads // 2 if attention_heads is None else attention_heads
        low = self.num_heads * check_heads(channels, num_heads)
        if self.num_heads < 1 or low >= channels or (channels - low) % 2:
            raise UserError(
                f"attention_heads={attention_heads} of num_heads={num_heads} takes {low} of {channels} channels; it must "
                "take some and leave an even number"
            )
        high = (channels - low) // 2
        self.shares = (high, high, low)
        self.pool_linear = nn.Linear(high, high)
        self.conv_linear = nn.Linear(high, high)
        self.conv = token_conv(high, 3, len(grid))
        self.qkv = nn.Linear(low, 3 * low, bias=qkv_bias)
        self.fuse = token_conv(channels, 3, len(grid))
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        pooled, convolved, attended = x.split(self.shares, dim=2)
        pooled = _MAX_POOL[len(grid)](to_map(pooled, grid), kernel_size=3, stride=1, padding=1)
        pooled = self.pool_linear(to_tokens(pooled))
        convolved = self.conv(self.conv_linear(convolved), grid)
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(attended).chunk(3, dim=2))
        attended = join_heads(F.scaled_dot_product_attention(query, key, value))
        y = torch.cat([pooled, convolved, attended], dim=2)
        return self.proj(y + self.fuse(y, grid))
