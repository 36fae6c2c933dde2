"""CSwin's softmax attention within cross-shaped windows; without prefix tokens."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.tokens import TokenConv
from mmlisa.models.layers.windows import merge_windows, pad_to_windows, split_windows
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads


@MODELS.register_module()
class CrossShapedWindowAttention(HeadedAttention):
    """Cross-shaped window attention of CSwin (Dong et al., Eqs. 4-7) with its locally-enhanced positional encoding.

    The first half of the channels attends within vertical stripes ``split_size`` tokens wide, the second within horizontal
    ones. The map is padded to whole stripes, unmasked, as Swin's.

    Args:
        split_size: width of the stripes, which need an even number of heads (UserError); None for global attention, as on a
            pretraining grid with a side of at most this width.
    """

    takes_prefix = False

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], split_size: int | None = 7, qkv_bias: bool = True
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        self.split_size = None if split_size is None or split_size >= min(grid) else split_size
        branches = 1 if self.split_size is None else 2
        if num_heads % branches:
            raise UserError(f"num_heads={num_heads}; vertical and horizontal stripes need an even number")
        self.branch_heads = num_heads // branches
        self.lepe = nn.ModuleList(TokenConv(channels // branches, 3) for _ in range(branches))

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x, stripes = x.unflatten(1, tuple(grid)), [tuple(grid)]
        if self.split_size is not None:
            x = pad_to_windows(x, (self.split_size, self.split_size))
            stripes = [(x.shape[1], self.split_size), (self.split_size, x.shape[2])]
        branches = [qkv.chunk(len(stripes), dim=3) for qkv in self.qkv(x).chunk(3, dim=3)]
        maps = map(self._attend_stripes, zip(*branches, strict=True), stripes, self.lepe)
        return self.proj(torch.cat(list(maps), dim=3)[:, : grid[0], : grid[1]].flatten(1, 2))

    def _attend_stripes(
        self, branch: tuple[Tensor, Tensor, Tensor], stripe: tuple[int, int], lepe: TokenConv
    ) -> Tensor:
        """Maps q, k, v ``[B, H, W, c]`` of one branch -> ``[B, H, W, c]``."""
        padded = branch[0].shape[1:3]
        query, key, value = (split_windows(t, stripe) for t in branch)
        heads = (split_heads(t, self.branch_heads) for t in (query, key, value))
        y = join_heads(F.scaled_dot_product_attention(*heads)) + lepe(value, stripe)
        return merge_windows(y, stripe, padded)
