"""Rotary positions of a map (Su et al., "RoFormer", Eq. 16, along two axes as MILA has them).

With K = C / 4 frequencies θ_k = 10000^(-k/K), the token in row y and column x turns its pair j of channels (2j, 2j + 1) by the
angle y θ_j for j < K, and by x θ_(j-K) for the others. Positions count from 0 on a map of any size.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from .precision import at_least_fp32, no_autocast

BASE = 10000


def rotary(x: Tensor, grid: Sequence[int]) -> Tensor:
    """Turn pairs of channels by angles that grow with the row and the column.

    Args:
        x: ``[..., N, C]``, the tokens of the grid in row-major order. Prefix tokens before them are not turned.
        grid: (H, W).

    Returns:
        ``[..., N, C]``, computed in fp32 at least, in the precision of ``x``.

    Raises:
        ValueError: C is not a multiple of 4.
    """
    if x.shape[-1] % 4:
        raise ValueError(f"rotary positions need a multiple of 4 channels, got {x.shape[-1]}")
    with no_autocast(x.device):
        prefix = x.shape[-2] - prod(grid)
        tokens = x[..., prefix:, :] if prefix else x
        count = x.shape[-1] // 4
        pairs = at_least_fp32(tokens).unflatten(-1, (2, count, 2)).unflatten(-4, tuple(grid))  # [..., H, W, 2, K, 2]
        exponents = torch.arange(count, dtype=pairs.dtype, device=x.device) / count
        down, right = (
            torch.arange(size, dtype=pairs.dtype, device=x.device)[:, None] * BASE**-exponents for size in grid
        )
        turned = torch.stack([_turn(pairs[..., 0, :, :], down[:, None]), _turn(pairs[..., 1, :, :], right)], dim=-3)
        turned = turned.flatten(-3).flatten(-3, -2).to(x.dtype)
    return torch.cat([x[..., :prefix, :], turned], dim=-2) if prefix else turned


def _turn(pairs: Tensor, angle: Tensor) -> Tensor:
    """``[..., H, W, K, 2]`` by ``[H, 1, K]`` or ``[W, K]``."""
    even, odd = pairs.unbind(-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
