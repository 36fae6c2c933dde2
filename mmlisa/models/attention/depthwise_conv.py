"""Depthwise convolution as a token mixer, on grids of one to three axes."""

from collections.abc import Sequence

from torch import Tensor, nn

from mmlisa.models.layers.tokens import token_conv
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
