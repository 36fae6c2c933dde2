"""RALA and MALA as token mixers: rotary positions, a convolution of the values, and a gate on the output."""

from collections.abc import Sequence

from torch import Tensor

from mmlisa.models.layers.gated import GatedProjection, LePE
from mmlisa.ops import mala, rala
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


class GatedLinearAttention(HeadedAttention):
    """Base of RALA and MALA: ``proj(gate(x) * (attend(q, k, v) + LePE(v)))`` with ``q, k, v = qkv(x)``.

    Args:
        channels, qkv_bias: see :class:`HeadedAttention`.
        num_heads: heads h, of a width that is a multiple of 4.
        lepe_kernel_size: of the depthwise convolution of the values.

    Raises:
        UserError: see :class:`HeadedAttention`; at the call, a width of a head that is not a multiple of 4.
    """

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], lepe_kernel_size: int = 5, qkv_bias: bool = True
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias, proj_bias=None)
        self.lepe = LePE(channels, lepe_kernel_size)
        self.output = GatedProjection(channels)

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=2)
        y = self.attend(*(split_heads(t, self.num_heads) for t in (query, key, value)), grid)
        return self.output(x, join_heads(y) + self.lepe(value, grid))


@MODELS.register_module()
class RALAAttention(GatedLinearAttention):
    """Rank-augmented linear attention: :func:`mmlisa.ops.rala`. See :class:`GatedLinearAttention` for its arguments."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return rala(query, key, value, grid)


@MODELS.register_module()
class MALAAttention(GatedLinearAttention):
    """Magnitude-aware linear attention: :func:`mmlisa.ops.mala`. See :class:`GatedLinearAttention` for its arguments."""

    full_precision = True

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return mala(query, key, value, grid)
