"""LiSA (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", journal version, Sec. 4.3).

Shapes: B batch, h heads, c channels of a head, D structural patterns, grid the token grid of one to three axes, N its size::

    G^a_cd = key_c (*) W^a_cd (+ B^a_cd)        circular convolution over the grid, [B, h, c, D, *grid]
    G^b_vd = value_v (*) W^b_d                  the D kernels are shared by all channels
    s_d    = sum_c query_c G^a_cd               the encoded structural pattern, [B, h, D, *grid]
    y_v    = sum_d s_d (G^b_vd + B_vd)          [B, h, c, *grid]

Every backend is a class of what it derives from the kernels on one grid (``prepare``), called with the tokens.
"""

from math import prod
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .lisa_circulant import CirculantKernels, circulant
from .lisa_dft import DFTKernels
from .lisa_fft import FFTKernels

# Below this many tokens the O(N^2) products of the circulant form beat the FFT (measured on CPU: docs/benchmarks).
CIRCULANT_MAX_TOKENS = 64


class LiSAKernels(Protocol):
    """Kernels made ready for one grid: ``[B, h, c, *grid]`` query, key, value -> ``[B, h, c, *grid]``."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor: ...


class ReferenceKernels(NamedTuple):
    """The equations as they stand, with circulant matrices, in O(N^2 C D); the oracle of every other backend."""

    kernel_a: Tensor
    kernel_b: Tensor
    bias: Tensor
    bias_a: Tensor | None

    prepare = classmethod(lambda cls, *kernels: cls(*kernels))

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        grid = query.shape[3:]
        q, k, v = (x.flatten(3) for x in (query, key, value))
        ga = torch.einsum("bhcn,cdin->bhcdi", k, circulant(self.kernel_a, grid))
        if self.bias_a is not None:
            ga = ga + self.bias_a[..., None]
        gb = torch.einsum("bhvn,din->bhvdi", v, circulant(self.kernel_b, grid))
        s = torch.einsum("bhci,bhcdi->bhdi", q, ga)
        y = torch.einsum("bhdi,bhvdi->bhvi", s, gb + self.bias[..., None])
        return y.unflatten(-1, grid)


_BACKENDS = {
    "reference": ReferenceKernels,
    "fft": FFTKernels,
    "circulant": CirculantKernels,
    "dft": DFTKernels,
}
BACKENDS = ("auto", *_BACKENDS)


def lisa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kernel_a: Tensor,
    kernel_b: Tensor,
    bias: Tensor,
    bias_a: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Structure-aware attention with circulant position kernels (Eqs. 12-14 of the journal paper).

    Args:
        query, key: ``[B, h, c, *grid]``, already L2-normalised over ``c``.
        value: ``[B, h, c, *grid]``.
        kernel_a: ``[c, D, *grid]``, W^a: one circular kernel per channel and pattern, shared by the heads.
        kernel_b: ``[D, *grid]``, W^b: one circular kernel per pattern, shared by heads and channels.
        bias: ``[c, D]``, B.
        bias_a: ``[c, D]``, B^a of the paper's first version; None for the journal's form.
        backend: ``'fft'`` is log-linear in N, a few patterns at a time; ``'circulant'`` multiplies by circulant matrices,
            the fastest on tiny grids; ``'dft'`` is made of real matrix products alone, for exports that know no complex
            numbers; ``'reference'`` evaluates the sums as they stand. ``'auto'`` takes ``'circulant'`` up to
            ``CIRCULANT_MAX_TOKENS`` tokens, else ``'fft'``, and ``'dft'`` inside an ONNX export.

    Returns:
        ``[B, h, c, *grid]``, in the query's dtype. Half precision is computed in fp32 by all but ``'reference'``.

    Raises:
        ValueError: shapes that do not fit each other, or an unknown backend.
    """
    _check_shapes(query, key, value, kernel_a, kernel_b, bias, bias_a)
    kernels = prepare_lisa(kernel_a, kernel_b, bias, bias_a, backend=backend)
    return kernels(query, key, value)


def prepare_lisa(
    kernel_a: Tensor, kernel_b: Tensor, bias: Tensor, bias_a: Tensor | None = None, *, backend: str = "auto"
) -> LiSAKernels:
    """What :func:`lisa` derives from its kernels alone; worth keeping between calls with fixed parameters.

    Args:
        kernel_a, kernel_b, bias, bias_a, backend: see :func:`lisa`.

    Returns:
        A callable ``(query, key, value) -> y``; differentiable with respect to the kernels as well.

    Raises:
        ValueError: an unknown backend.
    """
    if backend == "auto":
        if torch.onnx.is_in_onnx_export():
            backend = "dft"
        else:
            backend = "circulant" if prod(kernel_b.shape[1:]) <= CIRCULANT_MAX_TOKENS else "fft"
    if backend not in _BACKENDS:
        raise ValueError(f"backend is {backend!r}; it must be one of {BACKENDS}")
    return _BACKENDS[backend].prepare(kernel_a, kernel_b, bias, bias_a)


def resize_kernel(kernel: Tensor, grid: tuple[int, ...]) -> Tensor:
    """The same circular kernel on another grid: its spectrum resampled exactly.

    The taps are kept at their signed offsets (origin at index 0, negative offsets at the end): a larger grid pads zeros in
    the middle, a smaller one folds the taps that no longer fit. The Nyquist tap of an even size stands for both signs and is
    split between them, so a symmetric kernel stays symmetric.

    Args:
        kernel: ``[..., *old_grid]``.
        grid: the new size of the last ``len(grid)`` axes.

    Returns:
        ``[..., *grid]``; ``kernel`` itself where the sizes are equal.
    """
    for axis, size in zip(range(-len(grid), 0), grid, strict=True):
        old = kernel.shape[axis]
        if old == size:
            continue
        offsets = torch.arange(old, device=kernel.device)
        offsets = torch.where(offsets > old // 2, offsets - old, offsets)
        if old % 2 == 0:
            before, nyquist, after = kernel.split([old // 2, 1, old // 2 - 1], dim=axis)
            kernel = torch.cat([before, nyquist / 2, after, nyquist / 2], dim=axis)
            offsets = torch.cat([offsets, -offsets[old // 2 : old // 2 + 1]])
        resized = kernel.new_zeros(*kernel.shape[:axis], size, *kernel.shape[kernel.ndim + axis + 1 :])
        kernel = resized.index_add(axis, offsets % size, kernel)
    return kernel


def _check_shapes(query, key, value, kernel_a, kernel_b, bias, bias_a) -> None:
    if query.ndim < 4 or not query.shape == key.shape == value.shape:
        raise ValueError(
            "query, key and value must be [B, h, c, *grid] of one shape, got "
            f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
        )
    c, grid, num_patterns = query.shape[2], query.shape[3:], kernel_b.shape[0]
    expected = {
        "kernel_a": (kernel_a, (c, num_patterns, *grid)),
        "kernel_b": (kernel_b, (num_patterns, *grid)),
        "bias": (bias, (c, num_patterns)),
        "bias_a": (bias_a, (c, num_patterns)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; these tokens and patterns need {shape}")
