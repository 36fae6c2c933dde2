"""Convolutions for any number of grid axes."""

from collections.abc import Sequence

from torch import nn

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def depthwise(
    channels: int, kernel_size: int | Sequence[int], grid_axes: int = 2, *, stride: int = 1, bias: bool = True
) -> nn.Module:
    """Depthwise convolution on ``[B, channels, *grid]``; with stride 1 it keeps the grid, otherwise divides it, rounding up.

    Raises:
        ValueError: ``kernel_size`` is neither a number nor one per axis.
    """
    size = (kernel_size,) * grid_axes if isinstance(kernel_size, int) else tuple(kernel_size)
    if len(size) != grid_axes:
        raise ValueError(f"kernel_size={kernel_size!r}; it must be a number, or {grid_axes}, one per axis of the grid")
    padding = tuple(k // 2 for k in size)
    return CONVOLUTIONS[grid_axes](channels, channels, size, stride, padding, groups=channels, bias=bias)
