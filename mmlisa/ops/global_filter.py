"""Global filters (Rao et al., "Global Filter Networks for Image Classification", NeurIPS 2021)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .lisa import resize_kernel
from .precision import at_least_fp32, no_autocast


def global_filter(x: Tensor, spectrum: Tensor) -> Tensor:
    """A circular convolution per channel with a filter given by its half spectrum.

    Args:
        x: ``[B, C, *grid]``.
        spectrum: complex ``[C, g_1, ..., g_n // 2 + 1]``, as ``rfftn`` gives it.

    Returns:
        ``[B, C, *grid]`` in x's dtype; the FFTs run in fp32 at least.
    """
    axes = tuple(range(2, x.ndim))
    with no_autocast(x.device):
        x_f = torch.fft.rfftn(at_least_fp32(x), dim=axes)
        return torch.fft.irfftn(x_f * spectrum, s=x.shape[2:], dim=axes).to(x.dtype)


def resize_spectrum(spectrum: Tensor, grid: Sequence[int], new_grid: Sequence[int]) -> Tensor:
    """The half spectrum of the same filter on another grid: ``[..., *half(grid)] -> [..., *half(new_grid)]``."""
    axes = tuple(range(-len(grid), 0))
    with no_autocast(spectrum.device):
        taps = torch.fft.irfftn(spectrum, s=tuple(grid), dim=axes)
        return torch.fft.rfftn(resize_kernel(taps, tuple(new_grid)), dim=axes)
