"""Swin's softmax attention within shifted windows; without prefix tokens."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers.grids import ResizeOnLoad, resize_rows
from mmlisa.models.layers.windows import cyclic_shift, merge_windows, pad_to_windows, split_windows, window_shift
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


@MODELS.register_module()
class ShiftedWindowAttention(ResizeOnLoad, HeadedAttention):
    """Window attention of Swin (Liu et al., Eq. 4), as its detection code: maps are padded to whole windows, unmasked.

    Args:
        window_size: tokens along a side of a window, which is at most as large as the pretraining grid.
        shift: shift the windows by half a window; never on a map whose smaller side one window covers.
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
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        self.shift = shift
        self.window_size = min(window_size, *grid)
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * self.window_size - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return resize_rows(saved, (2 * self.window_size - 1,) * 2)

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        grid, window = tuple(grid), (self.window_size,) * 2
        shift = window_shift(grid, window, x.device) if self.shift else None
        x = pad_to_windows(x.unflatten(1, grid), window)
        padded, mask = tuple(x.shape[1:3]), None
        if shift is not None:
            x = cyclic_shift(x, shift)
            mask = shift_mask(padded, self.window_size, shift[0], x.device)
        x = merge_windows(self.attend_windows(split_windows(x, window), mask), window, padded)
        if shift is not None:
            x = cyclic_shift(x, shift, back=True)
        return x[:, : grid[0], : grid[1]].flatten(1, 2)

    def attend_windows(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Windows ``[B nW, n, C]``, ``mask: [nW, n, n]`` -> ``[B nW, n, C]``."""
        query, key, value = self.qkv(x).chunk(3, dim=2)
        position = relative_position(self.window_size, x.device)
        bias = self.relative_position_bias_table[position].permute(2, 0, 1)[None]  # [1, h, n, n]
        if mask is not None:
            bias = (bias + mask[:, None].to(bias.dtype)).repeat(x.shape[0] // mask.shape[0], 1, 1, 1)
        heads = split_heads(query, self.num_heads), split_heads(key, self.num_heads), split_heads(value, self.num_heads)
        return self.proj(join_heads(F.scaled_dot_product_attention(*heads, attn_mask=bias)))


def relative_position(size: int, device: torch.device) -> Tensor:
    """``[n, n]``, n = size^2: the row of the bias table for each pair of a query and a key of a window."""
    side = torch.arange(size, device=device)
    offset = side[:, None] - side + size - 1  # [size, size], of rows and of columns
    index = offset[:, None, :, None] * (2 * size - 1) + offset[None, :, None, :]
    return index.flatten(2).flatten(0, 1)


def shift_mask(padded: tuple[int, int], size: int, shift: int | Tensor, device: torch.device) -> Tensor:
    """``[nW, n, n]``: -100 between tokens that only the cyclic shift brought into one window."""
    regions = []
    for side in padded:
        from_the_end = torch.arange(side, device=device) - side
        regions.append((from_the_end >= -size).long() + (from_the_end >= -shift).long())
    region = regions[0][:, None] * 3 + regions[1][None, :]
    windows = split_windows(region[None, :, :, None], (size, size))[..., 0]
    return (windows[:, :, None] != windows[:, None, :]).float() * -100.0
