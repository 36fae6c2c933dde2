"""Lambda convolution as a token mixer, O(N^2)."""

from collections.abc import Sequence

from torch import Tensor, nn

from mmlisa.models.layers.grids import RelativePosition
from mmlisa.ops import lambda_convolution
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


@MODELS.register_module()
class LambdaConvolution(HeadedAttention):
    """Lambda layer (Bello, "LambdaNetworks", 2021) over the whole grid: one lambda per head, batch norm on queries and values.

    It has no output projection: LambdaNetworks has none, and the parameters of LiSA's Table 3a leave no room for one.

    Args:
        channels, num_heads: see :class:`HeadedAttention`.
        grid: the pretraining grid, the size of the relative positions.
    """

    takes_prefix = False

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int]) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=False, proj_bias=None)
        self.norm_query, self.norm_value = nn.BatchNorm1d(channels), nn.BatchNorm1d(channels)
        self.relative = RelativePosition((self.head_dims,), grid)

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        query, key, value = self.qkv(x).transpose(1, 2).chunk(3, dim=1)
        channels = (self.norm_query(query), key, self.norm_value(value))
        heads = (split_heads(t.transpose(1, 2), self.num_heads) for t in channels)
        return join_heads(lambda_convolution(*heads, self.relative(grid))).to(x.dtype)
