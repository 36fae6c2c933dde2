"""Norms over the channels of maps ``[B, C, *grid]``, and depthwise convolutions, for any number of grid axes."""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class ChannelLayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` over axis 1: ``[B, C, *grid] -> [B, C, *grid]``."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.movedim(1, -1), self.normalized_shape, self.weight, self.bias, self.eps).movedim(-1, 1)


_NORMS = {
    "LN": {2: ChannelLayerNorm, 3: ChannelLayerNorm},
    "BN": {2: nn.BatchNorm2d, 3: nn.BatchNorm3d},
    "SyncBN": {2: nn.SyncBatchNorm, 3: nn.SyncBatchNorm},
}


def build_norm(cfg: dict[str, Any], channels: int, grid_axes: int = 2) -> nn.Module:
    """A norm over the channels of ``[B, channels, *grid]``: ``dict(type='LN' | 'BN' | 'SyncBN', eps=…)``.

    Raises:
        ValueError: another type.
    """
    options = dict(cfg)
    name = options.pop("type", None)
    if name not in _NORMS:
        raise ValueError(f"norm_cfg=dict(type={name!r}); it must be one of {sorted(_NORMS)}")
    return _NORMS[name][grid_axes](channels, **options)


CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def depthwise(
    channels: int, kernel_size: int | Sequence[int], grid_axes: int = 2, *, stride: int = 1, bias: bool = True
) -> nn.Module:
    """Depthwise convolution on ``[B, channels, *grid]``; with stride 1 it keeps the grid, otherwise divides it, rounding up."""
    size = (kernel_size,) * grid_axes if isinstance(kernel_size, int) else tuple(kernel_size)
    padding = tuple(k // 2 for k in size)
    return CONVOLUTIONS[grid_axes](channels, channels, size, stride, padding, groups=channels, bias=bias)
