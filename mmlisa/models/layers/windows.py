"""Maps ``[B, H, W, C]`` as windows of tokens ``[B nH nW, h w, C]``, and back; the map is padded to whole windows."""

import torch
import torch.nn.functional as F
from torch import Tensor


def split_windows(x: Tensor, window: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """``[B, H, W, C]`` -> windows ``[B nH nW, h w, C]``, zeros below and to the right, and the padded size (nH h, nW w)."""
    _, height, width, _ = x.shape
    pad_h, pad_w = -height % window[0], -width % window[1]
    if pad_h or pad_w:
        x = F.pad(x, (0, 0, 0, pad_w, 0, pad_h))
    windows = x.unflatten(2, (-1, window[1])).unflatten(1, (-1, window[0])).transpose(2, 3)
    return windows.flatten(3, 4).flatten(0, 2), (height + pad_h, width + pad_w)


def merge_windows(windows: Tensor, window: tuple[int, int], padded: tuple[int, int]) -> Tensor:
    """``[B nH nW, h w, C]`` -> the padded map ``[B, nH h, nW w, C]``, the inverse of :func:`split_windows` before its crop."""
    grid = (padded[0] // window[0], padded[1] // window[1])
    x = windows.unflatten(0, (-1, *grid)).unflatten(3, window)
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def valid_tokens(grid: tuple[int, int], window: tuple[int, int], device: torch.device) -> Tensor | None:
    """``[nH nW, h w]``, True where a token is of the map and not of its padding; None where nothing is padded."""
    if grid[0] % window[0] == 0 and grid[1] % window[1] == 0:
        return None
    inside = torch.ones(1, *grid, 1, dtype=torch.bool, device=device)
    return split_windows(inside, window)[0][..., 0]
