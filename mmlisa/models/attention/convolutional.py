"""Softmax attention on convolved queries, keys and values, on grids of one to three axes."""

from collections.abc import Sequence
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers.tokens import CONVOLUTIONS, to_map, to_tokens
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


@MODELS.register_module()
class ConvolutionalAttention(HeadedAttention):
    """Softmax attention on queries, keys and values that passed a depthwise convolution each (after MViTv2, Li et al. 2022).

    Args:
        kernel_size: of the convolutions.
        stride: of the keys' and values' convolutions; the queries keep the grid.
    """

    takes_prefix = False

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        kernel_size: int = 3,
        stride: int = 1,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        conv = partial(CONVOLUTIONS[len(grid)], channels, channels, kernel_size, groups=channels, bias=False)
        self.convs = nn.ModuleList(conv(stride=s, padding=kernel_size // 2) for s in (1, stride, stride))

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        maps = to_map(self.qkv(x), grid).chunk(3, dim=1)
        tokens = (to_tokens(conv(m)) for conv, m in zip(self.convs, maps, strict=True))
        query, key, value = (split_heads(t, self.num_heads) for t in tokens)
        return self.proj(join_heads(F.scaled_dot_product_attention(query, key, value)))
