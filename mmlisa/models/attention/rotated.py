"""Linear attentions with rotary positions and a convolution of the values: MILA, and RALA and MALA behind a gate."""

from collections.abc import Sequence

from torch import Tensor, nn

from mmlisa.models.layers.tokens import LePE
from mmlisa.ops import beyond_fp16, mala, mila, rala
from mmlisa.registry import MODELS

from .base import HeadedAttention, check_heads, check_tokens, join_heads, split_heads


@MODELS.register_module()
class MILAAttention(nn.Module):
    """MILA's attention (:func:`mmlisa.ops.mila`), whose values are the tokens; the output projection belongs to MILA's block."""

    def __init__(self, channels: int, num_heads: int, *, grid: Sequence[int], qkv_bias: bool = True) -> None:
        super().__init__()
        check_heads(channels, num_heads)
        self.num_heads = num_heads
        self.qk = nn.Linear(channels, 2 * channels, bias=qkv_bias)
        self.lepe = LePE(channels, 3)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid, takes_prefix=True)
        query, key, value = (split_heads(t, self.num_heads) for t in (*self.qk(x).chunk(2, dim=2), x))
        return join_heads(mila(query, key, value, grid)) + self.lepe(x, grid)


class GatedProjection(nn.Module):
    """``Linear(Linear(x) * y)``: the projection of an operator's result ``y`` behind a gate that depends on its input ``x``.

    The gate grows with the input, and so does what it multiplies: under fp16 the product is taken and projected in fp32.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate, self.proj = nn.Linear(channels, channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gate = self.gate(x)
        context, dtype = beyond_fp16(x, self)
        with context:
            return self.proj(gate.to(dtype) * y.to(dtype))


class GatedLinearAttention(HeadedAttention):
    """Base of RALA and MALA: ``proj(gate(x) * (attend(q, k, v) + LePE(v)))`` with ``q, k, v = qkv(x)``.

    The rotary positions need heads whose width is a multiple of 4 (UserError). LePE convolves by ``lepe_kernel_size``.
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
    """Rank-augmented linear attention: see :func:`mmlisa.ops.rala` and :class:`GatedLinearAttention`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return rala(query, key, value, grid)


@MODELS.register_module()
class MALAAttention(GatedLinearAttention):
    """Magnitude-aware linear attention: see :func:`mmlisa.ops.mala` and :class:`GatedLinearAttention`."""

    full_precision = True

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return mala(query, key, value, grid)
