"""Injective linear attention (Han et al., "Bridging the Divide"), with the released networks' kernel function, the identity."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn

from mmlisa.models.layers.tokens import after_prefix, to_map, to_tokens
from mmlisa.ops import at_least_fp32, beyond_fp16, depthwise_per_image, inline
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


@MODELS.register_module()
class InLineAttention(HeadedAttention):
    """InLine: injective linear attention with a local residual, in which prefix tokens have no part.

    The residual is a 3x3 convolution of the values. An MLP makes its kernel for each channel from the mean of the image's tokens.
    """

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int], qkv_bias: bool = True) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        self.residual = nn.Sequential(nn.Linear(channels, channels), nn.GELU(), nn.Linear(channels, 9 * channels))

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        prefix = x.shape[1] - prod(grid)
        context, dtype = beyond_fp16(x, self)
        query, key, value = self.qkv(x).chunk(3, dim=2)
        kernels = self.residual(at_least_fp32(x[:, prefix:]).mean(1).to(dtype)).unflatten(1, (-1, 9))
        # Kernels and similarities grow with the input, as the values do: their products leave the range of fp16.
        with context:
            query, key, value = (t.to(dtype) for t in (query, key, value))
            y = join_heads(inline(*(split_heads(t, self.num_heads) for t in (query, key, value))))
            local = to_tokens(depthwise_per_image(to_map(value[:, prefix:], grid), kernels.to(dtype)))
            return self.proj(y + after_prefix(local, prefix))
