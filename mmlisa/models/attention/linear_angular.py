"""Linear-angular attention: what Castling-ViT keeps, and trains with an auxiliary branch beside it."""

from collections.abc import Sequence

from torch import Tensor

from mmlisa.ops import linear_angular, normalize_length
from mmlisa.ops.context import out_of_fp16
from mmlisa.registry import MODELS

from .castling import CastlingAttention


@MODELS.register_module()
class LinearAngularAttention(CastlingAttention):
    """``proj(norm(v / 2 + q̂ (k̂ᵀ v) / π + aux) + DConv(v))`` (You et al., "Castling-ViT", Eqs. 9-10), norm: L2 over a head.

    Args:
        conv_size: see :class:`CastlingAttention`; 9 is the paper's.
        **options: see :class:`CastlingAttention`.
    """

    def __init__(self, channels: int, num_heads: int, *, conv_size: int | None = 9, **options) -> None:
        super().__init__(channels, num_heads, conv_size=conv_size, **options)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return linear_angular(query, key, out_of_fp16(value))  # in fp16 the sum would overflow before it is normalised

    def normalise(self, y: Tensor) -> Tensor:
        return normalize_length(y)
