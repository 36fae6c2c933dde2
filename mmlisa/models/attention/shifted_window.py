"""Swin's softmax attention within shifted windows; without prefix tokens."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import (
    ResizeOnLoad,
    cyclic_shift,
    merge_windows,
    pad_to_windows,
    resize_rows,
    split_windows,
    window_shift,
)
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens
from .heads import join_heads, split_heads


@MODELS.register_module()
class ShiftedWindowAttention(ResizeOnLoad):
    """Window attention of Swin (Liu et al., Eq. 4), as its detection code: maps are padded to whole windows, unmasked.

    Args:
        channels: channels C.
        num_heads: heads h.
        grid: the pretraining grid; a window is at most as large.
        window_size: tokens along a side of a window.
        shift: shift the windows by half a window; never on a map whose smaller side one window covers.
        qkv_bias: bias in the query, key and value projection.

    Raises:
        ValueError: heads that do not divide the channels; at the call, tokens that are not those of the grid.
    """

    on_grid = ("relative_position_bias_table",)

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        window_size: int = 7,
        shift: bool = False,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        check_heads(channels, num_heads)
        self.num_heads, self.shift = num_heads, shift
        self.window_size = min(window_size, *grid)
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * self.window_size - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def resize_parameter(self, theirs: Tensor, ours: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return resize_rows(theirs, (2 * self.window_size - 1,) * 2)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        grid = tuple(grid)
        check_tokens(x, grid)
        size = self.window_size
        shift = window_shift(grid, (size, size), x.device) if self.shift else None
        x = pad_to_windows(x.unflatten(1, grid), (size, size))
        padded, mask = tuple(x.shape[1:3]), None
        if shift is not None:
            x = cyclic_shift(x, shift)
            mask = shift_mask(padded, size, shift[0], x.device)
        x = merge_windows(self._attend(split_windows(x, (size, size)), mask), (size, size), padded)
        if shift is not None:
            x = cyclic_shift(x, shift, back=True)
        return x[:, : grid[0], : grid[1]].flatten(1, 2)

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Windows ``[B nW, n, C]``, ``mask: [nW, n, n]`` -> ``[B nW, n, C]``."""
        heads = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        position = relative_position(self.window_size, x.device)
        bias = self.relative_position_bias_table[position].permute(2, 0, 1)[None]  # [1, h, n, n]
        if mask is not None:
            bias = (bias + mask[:, None].to(bias.dtype)).repeat(x.shape[0] // mask.shape[0], 1, 1, 1)
        return self.proj(join_heads(F.scaled_dot_product_attention(*heads, attn_mask=bias)))


def relative_position(size: int, device: torch.device) -> Tensor:
    """``[n, n]``, n = size^2: the row of the bias table for each pair of a query and a key of a window."""
    side = torch.arange(size, device=device)
    row, column = (x.flatten() for x in torch.meshgrid(side, side, indexing="ij"))
    offset_row, offset_column = (x[:, None] - x[None, :] + size - 1 for x in (row, column))
    return offset_row * (2 * size - 1) + offset_column


def shift_mask(padded: tuple[int, int], size: int, shift: int | Tensor, device: torch.device) -> Tensor:
    """``[nW, n, n]``: -100 between tokens that only the cyclic shift brought into one window."""
    regions = []
    for side in padded:
        from_the_end = torch.arange(side, device=device) - side
        regions.append((from_the_end >= -size).long() + (from_the_end >= -shift).long())
    region = regions[0][:, None] * 3 + regions[1][None, :]
    windows = split_windows(region[None, :, :, None], (size, size))[..., 0]
    return (windows[:, :, None] != windows[:, None, :]).float() * -100.0
