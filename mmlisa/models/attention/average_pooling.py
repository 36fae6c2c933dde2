"""Average pooling as a token mixer (Yu et al., "MetaFormer Is Actually What You Need for Vision")."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers.tokens import to_map, to_tokens
from mmlisa.registry import MODELS

from .base import check_tokens

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
