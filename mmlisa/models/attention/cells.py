"""Exact attention nearby and cells elsewhere, in the place of a trained softmax."""

from collections.abc import Sequence

from torch import Tensor

from mmlisa.ops import cell_attention
from mmlisa.registry import MODELS

from .base import HeadedAttention


@MODELS.register_module()
class CellAttention(HeadedAttention):
    """Softmax attention to the own window and to means over cells elsewhere, see :mod:`mmlisa.ops.cells`; linear in N.

    It has the parameters of ``SoftmaxAttention`` and computes nearly what that computes, without training: on small maps the
    same. Prefix tokens attend to all tokens, and all tokens to them.

    Args:
        window: largest side of a window in tokens; the map has as few as possible, of equal size. 0: cells alone.
        cells: number of cells a side. 0: attention within windows, ViTDet's, and to the prefix tokens.
    """

    takes_rotary = True

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        window: int = 16,
        cells: int = 24,
        head_dims: int | None = None,
        qkv_bias: bool = True,
        proj_bias: bool = True,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, head_dims=head_dims, qkv_bias=qkv_bias, proj_bias=proj_bias)
        self.window, self.cells = window, cells

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return cell_attention(query, key, value, grid, self.window, self.cells)
