"""LiSA (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", journal version, Sec. 4.3).

Shapes: B batch, h heads, c channels of a head, D structural patterns, grid the token grid of one to three axes, N its size::

    G^a_cd = key_c (*) W^a_cd (+ B^a_cd)        circular convolution over the grid, [B, h, c, D, *grid]
    G^b_vd = value_v (*) W^b_d                  the D kernels are shared by all channels
    s_d    = sum_c query_c G^a_cd               the encoded structural pattern, [B, h, D, *grid]
    y_v    = sum_d s_d (G^b_vd + B_vd)          [B, h, c, *grid]
"""

from math import prod

import torch
from torch import Tensor

from .precision import no_autocast

BACKENDS = ("auto", "reference", "fft")


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
        backend: ``'reference'`` evaluates the circulant sums directly, in O(N^2) and the inputs' own precision;
            ``'fft'`` is log-linear in N; ``'auto'`` chooses the fastest.

    Returns:
        ``[B, h, c, *grid]``.

    Raises:
        ValueError: shapes that do not fit each other, or an unknown backend.
    """
    _check_shapes(query, key, value, kernel_a, kernel_b, bias, bias_a)
    if backend == "reference":
        return _lisa_reference(query, key, value, kernel_a, kernel_b, bias, bias_a)
    if backend in ("auto", "fft"):
        return _lisa_fft(query, key, value, kernel_a, kernel_b, bias, bias_a)
    raise ValueError(f"backend is {backend!r}; it must be one of {BACKENDS}")


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


def _circulant(kernel: Tensor, grid: torch.Size) -> Tensor:
    """``[..., *grid]`` -> ``[..., N, N]``: entry (i, n) is the kernel at the cyclic offset i - n."""
    n = prod(grid)
    position = torch.stack(torch.meshgrid(*(torch.arange(size) for size in grid), indexing="ij")).flatten(1)
    offset = (position[:, :, None] - position[:, None, :]) % torch.tensor(grid)[:, None, None]
    index = torch.zeros(n, n, dtype=torch.long)
    for axis, size in enumerate(grid):
        index = index * size + offset[axis]
    return kernel.flatten(-len(grid))[..., index.to(kernel.device)]


def _lisa_reference(query, key, value, kernel_a, kernel_b, bias, bias_a) -> Tensor:
    """The equations as they stand, with circulant matrices; the oracle of every other backend."""
    grid = query.shape[3:]
    q, k, v = (x.flatten(3) for x in (query, key, value))
    ga = torch.einsum("bhcn,cdin->bhcdi", k, _circulant(kernel_a, grid))
    if bias_a is not None:
        ga = ga + bias_a[..., None]
    gb = torch.einsum("bhvn,din->bhvdi", v, _circulant(kernel_b, grid))
    s = torch.einsum("bhci,bhcdi->bhdi", q, ga)
    y = torch.einsum("bhdi,bhvdi->bhvi", s, gb + bias[..., None])
    return y.unflatten(-1, grid)


def _lisa_fft(query, key, value, kernel_a, kernel_b, bias, bias_a) -> Tensor:
    """One pattern at a time, so that nothing of size NCD exists; FFTs in fp32 at least (half precision has none on CPU)."""
    grid, axes = query.shape[3:], tuple(range(3, query.ndim))
    dtype = query.dtype
    with no_autocast(query.device):
        if dtype in (torch.float16, torch.bfloat16):
            query, key, value = query.float(), key.float(), value.float()
        kernel_a, kernel_b, bias = (x.to(query.dtype) for x in (kernel_a, kernel_b, bias))
        key_f, value_f = torch.fft.rfftn(key, dim=axes), torch.fft.rfftn(value, dim=axes)
        kernel_axes = tuple(range(-len(grid), 0))
        kernel_a_f, kernel_b_f = torch.fft.rfftn(kernel_a, dim=kernel_axes), torch.fft.rfftn(kernel_b, dim=kernel_axes)
        y = torch.zeros_like(value)
        column = (slice(None), *(None,) * len(grid))  # [c] -> [c, 1, ..., 1]
        for d in range(kernel_b.shape[0]):
            ga = torch.fft.irfftn(key_f * kernel_a_f[:, d], s=grid, dim=axes)
            if bias_a is not None:
                ga = ga + bias_a.to(ga.dtype)[:, d][column]
            s = (query * ga).sum(dim=2, keepdim=True)
            gb = torch.fft.irfftn(value_f * kernel_b_f[d], s=grid, dim=axes)
            y = y + s * (gb + bias[:, d][column])
        return y.to(dtype)
