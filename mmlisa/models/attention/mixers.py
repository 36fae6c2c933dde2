"""Token mixers without attention, on grids of one to three axes."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers.grids import ResizeOnLoad
from mmlisa.models.layers.tokens import to_map, to_tokens, token_conv
from mmlisa.ops import at_least_fp32, global_filter, resize_spectrum
from mmlisa.registry import MODELS

from .base import check_tokens


@MODELS.register_module()
class DepthwiseConv(nn.Module):
    """Depthwise convolution, then an output projection (LiSA's Table 3a, after ConvNeXt and others).

    Args:
        kernel_size: an odd number, or one per axis.
    """

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], kernel_size: int | Sequence[int] = 7
    ) -> None:
        super().__init__()
        self.conv = token_conv(channels, kernel_size, len(grid))
        self.proj = nn.Linear(channels, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        return self.proj(self.conv(x, grid))


_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@MODELS.register_module()
class AveragePooling(nn.Module):
    """The mean of a token's neighbours minus the token itself; no parameters (PoolFormer's Eq. 4).

    Args:
        kernel_size: an odd number, the neighbourhood along each axis.
    """

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int], kernel_size: int = 3) -> None:
        super().__init__()
        self.kernel_size, self.pool = kernel_size, _POOL[len(grid)]

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        pooled = self.pool(
            to_map(x, grid), self.kernel_size, stride=1, padding=self.kernel_size // 2, count_include_pad=False
        )
        return to_tokens(pooled) - x


@MODELS.register_module()
class GlobalFilter(ResizeOnLoad):
    """GF layer (Rao et al., 2021), a learned filter per channel in the frequency domain, then an output projection.

    On a grid other than the pretraining one the filter keeps its taps (:func:`mmlisa.ops.resize_spectrum`).

    Args:
        grid: the pretraining grid, the size of the filter.
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
        """``x: [B, N, C]`` with N = prod(grid) -> ``[B, N, C]``."""
        check_tokens(x, grid)
        grid = tuple(grid)
        spectrum = torch.view_as_complex(at_least_fp32(self.spectrum).contiguous())
        if grid != self.grid:
            spectrum = resize_spectrum(spectrum, self.grid, grid)
        return self.proj(to_tokens(global_filter(to_map(x, grid), spectrum)))
