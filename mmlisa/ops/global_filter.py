"""Global filters (Rao et al., "Global Filter Networks for Image Classification", NeurIPS 2021)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .lisa import resize_kernel
from .precision import no_autocast


def global_filter(x: Tensor, spectrum: Tensor) -> Tensor:
    """A circular convolution per channel with a filter that is given by its half spectrum.

    Args:
        x: ``[B, C, *grid]``.
        spectrum: complex ``[C, g_1, ..., g_n // 2 + 1]``, as ``rfftn`` gives it.

    Returns:
        ``[B, C, *grid]``, of x's type; FFTs run in fp32 at least.
    """
    axes = tuple(range(2, x.ndim))
    with no_autocast(x.device):
        full = x.to(torch.promote_types(x.dtype, torch.float32))
        return torch.fft.irfftn(torch.fft.rfftn(full, dim=axes) * spectrum, s=x.shape[2:], dim=axes).to(x.dtype)


def resize_spectrum(spectrum: Tensor, grid: Sequence[int], new_grid: Sequence[int]) -> Tensor:
    """The half spectrum of the same filter on another grid: ``[..., *half(grid)] -> [..., *half(new_grid)]``."""
    axes = tuple(range(-len(grid), 0))
    with no_autocast(spectrum.device):
        taps = torch.fft.irfftn(spectrum, s=tuple(grid), dim=axes)
        return torch.fft.rfftn(resize_kernel(taps, tuple(new_grid)), dim=axes)
