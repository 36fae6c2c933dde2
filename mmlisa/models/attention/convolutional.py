"""Convolutions as token mixers, alone and together with softmax attention, on grids of one to three axes."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import depthwise
from mmlisa.registry import MODELS

from .builder import check_heads, check_tokens
from .projected import join_heads, split_heads

_MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    return x.transpose(1, 2).unflatten(2, tuple(grid))


def _to_tokens(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2)


@MODELS.register_module()
class DepthwiseConv(nn.Module):
    """Depthwise convolution, then an output projection (LiSA's Table 3a, after ConvNeXt and others).

    Args:
        embed_dims: channels C.
        num_heads: a convolution has no heads; they only must divide the channels, as everywhere.
        grid: the pretraining grid, for its number of axes.
        kernel_size: an odd number, or one per axis.

    Raises:
        ValueError: heads that do not divide the channels; at the call, tokens that are not those of the grid.
    """

    def __init__(
        self, embed_dims: int, num_heads: int, *, grid: Sequence[int], kernel_size: int | Sequence[int] = 7
    ) -> None:
        super().__init__()
        check_heads(embed_dims, num_heads)
        self.conv = depthwise(embed_dims, kernel_size, len(grid))
        self.proj = nn.Linear(embed_dims, embed_dims)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        return self.proj(_to_tokens(self.conv(_to_map(x, grid))))


@MODELS.register_module()
class ConvolutionalAttention(nn.Module):
    """Softmax attention on queries, keys and values that passed a depthwise convolution each (after MViTv2, Li et al. 2022).

    Args:
        embed_dims: channels C.
        num_heads: heads h.
        grid: the pretraining grid, for its number of axes.
        kernel_size: of the convolutions.
        stride: of the keys' and values' convolutions; the queries keep the grid.
        qkv_bias: bias in the query, key and value projection.

    Raises:
        ValueError: heads that do not divide the channels; at the call, tokens that are not those of the grid.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        kernel_size: int = 3,
        stride: int = 1,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        check_heads(embed_dims, num_heads)
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.convs = nn.ModuleList(
            depthwise(embed_dims, kernel_size, len(grid), stride=s, bias=False) for s in (1, stride, stride)
        )
        self.proj = nn.Linear(embed_dims, embed_dims)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        maps = _to_map(self.qkv(x), grid).chunk(3, dim=1)
        tokens = (_to_tokens(conv(m)) for conv, m in zip(self.convs, maps, strict=True))
        query, key, value = (split_heads(t, self.num_heads) for t in tokens)
        return self.proj(join_heads(F.scaled_dot_product_attention(query, key, value)))


@MODELS.register_module()
class InceptionMixer(nn.Module):
    """Max pooling, depthwise convolution and attention on a share of the channels each (Si et al., "Inception Transformer").

    ``Y = concat(Linear(MaxPool(x_1)), DWConv(Linear(x_2)), Attention(x_3))``, then ``Linear(Y + DWConv(Y))``; the third share
    is ``attention_heads`` heads wide, the other two halve the rest.

    Args:
        embed_dims: channels C.
        num_heads: heads that all the channels would have.
        grid: the pretraining grid, for its number of axes.
        attention_heads: heads that attend; None for half of them.
        qkv_bias: bias in the query, key and value projection.

    Raises:
        ValueError: heads that do not divide the channels, more attending heads than heads, or an odd rest; at the call,
            tokens that are not those of the grid.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        attention_heads: int | None = None,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads // 2 if attention_heads is None else attention_heads
        low = self.num_heads * check_heads(embed_dims, num_heads)
        if self.num_heads < 1 or low >= embed_dims or (embed_dims - low) % 2:
            raise ValueError(
                f"attention_heads={attention_heads} of num_heads={num_heads} takes {low} of {embed_dims} channels; it must "
                "take some and leave an even number"
            )
        high = (embed_dims - low) // 2
        self.shares = (high, high, low)
        self.pool_linear = nn.Linear(high, high)
        self.conv_linear = nn.Linear(high, high)
        self.conv = depthwise(high, 3, len(grid))
        self.qkv = nn.Linear(low, 3 * low, bias=qkv_bias)
        self.fuse = depthwise(embed_dims, 3, len(grid))
        self.proj = nn.Linear(embed_dims, embed_dims)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        pooled, convolved, attended = x.split(self.shares, dim=2)
        pooled = _MAX_POOL[len(grid)](_to_map(pooled, grid), kernel_size=3, stride=1, padding=1)
        pooled = self.pool_linear(_to_tokens(pooled))
        convolved = _to_tokens(self.conv(_to_map(self.conv_linear(convolved), grid)))
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(attended).chunk(3, dim=2))
        attended = join_heads(F.scaled_dot_product_attention(query, key, value))
        y = torch.cat([pooled, convolved, attended], dim=2)
        return self.proj(y + _to_tokens(self.fuse(_to_map(y, grid))))
