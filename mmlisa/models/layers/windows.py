"""Maps ``[B, H, W, C]`` as windows of tokens ``[B nH nW, h w, C]``, and back; the map is padded to whole windows."""

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlisa.ops.context import divide_up, has_free_size


def pad_to_windows(x: Tensor, window: tuple[int, int]) -> Tensor:
    """``[B, H, W, C] -> [B, nH h, nW w, C]``, with zeros below and to the right."""
    # Not -size % side: the recorded sizes of an export would not be multiples of the side to PyTorch.
    (height, width), (rows, columns) = x.shape[1:3], window
    pad_h, pad_w = divide_up(height, rows) * rows - height, divide_up(width, columns) * columns - width
    return F.pad(x, (0, 0, 0, pad_w, 0, pad_h)) if has_free_size(pad_h, pad_w) or pad_h or pad_w else x


def split_windows(x: Tensor, window: tuple[int, int]) -> Tensor:
    """A map of whole windows ``[B, nH h, nW w, C]`` -> windows ``[B nH nW, h w, C]``."""
    windows = x.unflatten(2, (-1, window[1])).unflatten(1, (-1, window[0])).transpose(2, 3)
    return windows.flatten(3, 4).flatten(0, 2)


def merge_windows(windows: Tensor, window: tuple[int, int], padded: tuple[int, int]) -> Tensor:
    """``[B nH nW, h w, C]`` -> the map ``[B, nH h, nW w, C]`` of size ``padded``, the inverse of :func:`split_windows`."""
    grid = (padded[0] // window[0], padded[1] // window[1])
    x = windows.unflatten(0, (-1, *grid)).unflatten(3, window)
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def window_shift(
    grid: tuple[int, int], window: tuple[int, int], device: torch.device
) -> tuple[int, int] | tuple[Tensor, Tensor] | None:
    """Half a window (rows, columns); None, or tensors of 0, if one window covers a side of the map."""
    half = (window[0] // 2, window[1] // 2)
    if has_free_size(*grid):
        sides = torch.stack([torch.zeros((), dtype=torch.long, device=device) + side for side in grid])
        is_larger = (sides > torch.tensor(window, device=device)).all()
        return half[0] * is_larger, half[1] * is_larger
    return half if grid[0] > window[0] and grid[1] > window[1] else None


def cyclic_shift(x: Tensor, shift: tuple[int, int] | tuple[Tensor, Tensor], back: bool = False) -> Tensor:
    """``[B, H, W, C]``, moved up and to the left by ``shift``, and ``back``; what leaves on a side comes in on the other."""
    if not isinstance(shift[0], Tensor):
        return x.roll(shift if back else (-shift[0], -shift[1]), (1, 2))
    for axis, steps in enumerate(shift, 1):
        size = x.shape[axis]
        index = torch.arange(size, device=x.device) + (-steps if back else steps)
        # Not % size: the exporter to ONNX has no remainder of a free size.
        x = x.index_select(
            axis, torch.where(index < 0, index + size, torch.where(index - size < 0, index, index - size))
        )
    return x


def valid_tokens(grid: tuple[int, int], window: tuple[int, int], device: torch.device) -> Tensor | None:
    """``[nH nW, h w]``, True where a token is of the map and not of its padding; None where nothing is padded."""
    if not has_free_size(*grid) and grid[0] % window[0] == 0 and grid[1] % window[1] == 0:
        return None
    inside = torch.ones(1, *grid, 1, dtype=torch.bool, device=device)
    return split_windows(pad_to_windows(inside, window), window)[..., 0]
