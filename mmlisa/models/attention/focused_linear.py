"""Focused linear attention (Han et al., "FLatten Transformer")."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import PositionsOnLoad
from mmlisa.models.layers.tokens import SharedTokenConv, TokenConv, after_prefix
from mmlisa.models.layers.windows import (
    cyclic_shift,
    merge_windows,
    pad_to_windows,
    split_windows,
    valid_tokens,
    window_shift,
)
from mmlisa.ops import focused_linear
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


@MODELS.register_module()
class FocusedLinearAttention(PositionsOnLoad, HeadedAttention):
    """``proj(Sim(Q, K) V + DWC(V))`` (Eq. 12). Prefix tokens attend too, have no position and skip the convolution.

    Args:
        focusing_factor: the power p of the focused function.
        kernel_size: of the depthwise convolution on the values, odd; its d kernels are shared by all heads. 0: none.
        lepe_kernel_size: of a second depthwise convolution on the values, one kernel for each of the C channels, as CSwin's
            locally-enhanced positional encoding. 0: none.
        window: attention within windows of at most ``window`` tokens a side instead of the whole grid; the map is padded to
            whole windows and its padding masked out of every sum. A pretraining grid smaller than the window is one window.
        shift: shift the windows by half a window, cyclically and without a mask (the authors' code; Table 6); never on a map
            whose smaller side one window covers. Without ``window``, it is a UserError.
        position: a positional encoding on the keys.
    """

    on_grid = ("positional_encoding",)

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        focusing_factor: float = 3,
        kernel_size: int = 5,
        lepe_kernel_size: int = 0,
        window: int | None = None,
        shift: bool = False,
        position: bool = True,
        qkv_bias: bool = True,
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        if shift and window is None:
            raise UserError("shift=True shifts windows, and there are none; give window=, or shift=False")
        self.focusing_factor, self.shift = focusing_factor, shift
        self.takes_rotary = window is None  # the rotary positions are those of the whole map
        self.window = None if window is None else tuple(min(window, size) for size in grid)
        self.scale = nn.Parameter(torch.zeros(1, 1, channels))
        self.positional_encoding = None
        if position:
            self.grid = self.window or tuple(grid)
            self.positional_encoding = nn.Parameter(torch.zeros(1, prod(self.grid), channels))
        self.dwc = SharedTokenConv(self.head_dims, kernel_size) if kernel_size else None
        self.lepe = TokenConv(channels, lepe_kernel_size) if lepe_kernel_size else None

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        grid = tuple(grid)
        if self.window is None:
            return self.attend_grid(x, grid)
        batch, x = x.shape[0], x.unflatten(1, grid)
        shift = window_shift(grid, self.window, x.device) if self.shift else None
        x = pad_to_windows(x if shift is None else cyclic_shift(x, shift), self.window)
        valid = valid_tokens(grid, self.window, x.device)
        if valid is not None:
            valid = valid.repeat(batch, 1)
        y = self.attend_grid(split_windows(x, self.window), self.window, valid)
        y = merge_windows(y, self.window, tuple(x.shape[1:3]))[:, : grid[0], : grid[1]]
        return (y if shift is None else cyclic_shift(y, shift, back=True)).flatten(1, 2)

    def attend_grid(self, x: Tensor, grid: tuple[int, int], valid: Tensor | None = None) -> Tensor:
        """``[B, N, C] -> [B, N, C]``, on the whole map or a window; ``valid: [B, N]`` is False where a window is padded."""
        prefix, heads = x.shape[1] - prod(grid), self.num_heads
        query, key, value = self.qkv(x).chunk(3, dim=2)
        if self.positional_encoding is not None:
            key = key + after_prefix(self.resize(self.positional_encoding, grid), prefix).to(key.dtype)
        if valid is not None:
            value = value * valid[..., None]
        turned = self.turn(split_heads(query, heads), split_heads(key, heads), grid)
        y = focused_linear(
            *turned,
            split_heads(value, heads),
            self.scale.view(heads, -1),
            focusing_factor=self.focusing_factor,
            mask=valid,
        )
        y = join_heads(y)
        for convolution in (self.dwc, self.lepe):
            if convolution is not None:
                y = y + after_prefix(convolution(value[:, prefix:], grid), prefix)
        return self.proj(y)
