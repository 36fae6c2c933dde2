"""Token mixers without attention, or with little of it, on grids of an image or a video."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import ResizeOnLoad
from mmlisa.models.layers.tokens import to_map, to_tokens, token_conv
from mmlisa.ops import at_least_fp32, global_filter, resize_spectrum
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads

_AVERAGE_POOL = {2: F.avg_pool2d, 3: F.avg_pool3d}  # by the axes of the grid
_MAX_POOL = {2: F.max_pool2d, 3: F.max_pool3d}


@MODELS.register_module()
class DepthwiseConv(nn.Module):
    """Depthwise convolution of an odd ``kernel_size``, or one per axis, then a projection (LiSA's Table 3a, after ConvNeXt)."""

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], kernel_size: int | Sequence[int] = 7
    ) -> None:
        super().__init__()
        self.conv = token_conv(channels, kernel_size, len(grid))
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        return self.proj(self.conv(x, grid))


@MODELS.register_module()
class AveragePooling(nn.Module):
    """The mean of a token's neighbours, an odd ``kernel_size`` of them along each axis, minus the token (PoolFormer's Eq. 4)."""

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int], kernel_size: int = 3) -> None:
        super().__init__()
        self.kernel_size, self.pool = kernel_size, _AVERAGE_POOL[len(grid)]

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        options = dict(stride=1, padding=self.kernel_size // 2, count_include_pad=False)
        return to_tokens(self.pool(to_map(x, grid), self.kernel_size, **options)) - x


@MODELS.register_module()
class GlobalFilter(ResizeOnLoad):
    """GF layer (Rao et al., 2021), a learned filter per channel in the frequency domain, then an output projection.

    On a grid other than the pretraining one the filter keeps its taps (:func:`mmlisa.ops.resize_spectrum`).
    """

    on_grid = ("spectrum",)

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int]) -> None:
        super().__init__()
        self.grid = tuple(grid)
        self.spectrum = nn.Parameter(torch.empty(channels, *grid[:-1], grid[-1] // 2 + 1, 2))  # real, imaginary
        nn.init.normal_(self.spectrum, std=0.02)
        self.proj = nn.Linear(channels, channels)

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        # Half a spectrum does not tell whether the last axis is even. It is as long as the one before, or even.
        if grid is None:
            *others, half = saved.shape[1:-1]
            grid = *others, others[-1] if others and others[-1] // 2 + 1 == half else 2 * (half - 1)
        if tuple(grid) == self.grid or saved.shape[1:-1] != (*grid[:-1], grid[-1] // 2 + 1):
            return saved
        spectrum = torch.view_as_complex(at_least_fp32(saved).contiguous())
        return torch.view_as_real(resize_spectrum(spectrum, grid, self.grid)).to(saved.dtype)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        grid = tuple(grid)
        spectrum = torch.view_as_complex(at_least_fp32(self.spectrum).contiguous())
        if grid != self.grid:
            spectrum = resize_spectrum(spectrum, self.grid, grid)
        return self.proj(to_tokens(global_filter(to_map(x, grid), spectrum)))


@MODELS.register_module()
class InceptionMixer(nn.Module):
    """Max pooling, depthwise convolution and attention on a share of the channels each (Si et al., "Inception Transformer").

    ``Y = concat(Linear(MaxPool(x_1)), DWConv(Linear(x_2)), Attention(x_3))``, then ``Linear(Y + DWConv(Y))``; the third share
    is ``attention_heads`` heads wide, the other two halve the rest.

    Args:
        attention_heads: heads that attend, of the ``num_heads`` that all the channels would have; None for half of them. They
            must leave an even number of channels (UserError).
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
        check_tokens(x, grid)
        pooled, convolved, attended = x.split(self.shares, dim=2)
        pooled = _MAX_POOL[len(grid)](to_map(pooled, grid), kernel_size=3, stride=1, padding=1)
        pooled = self.pool_linear(to_tokens(pooled))
        convolved = self.conv(self.conv_linear(convolved), grid)
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(attended).chunk(3, dim=2))
        attended = join_heads(F.scaled_dot_product_attention(query, key, value))
        y = torch.cat([pooled, convolved, attended], dim=2)
        return self.proj(y + self.fuse(y, grid))
