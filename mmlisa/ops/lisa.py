"""LiSA (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", journal version, Sec. 4.3).

Shapes: B batch, h heads, c channels of a head, D structural patterns, grid the token grid of one to three axes, N its size::

    G^a_cd = key_c (*) W^a_cd (+ B^a_cd)        circular convolution over the grid, [B, h, c, D, *grid]
    G^b_vd = value_v (*) W^b_d                  the D kernels are shared by all channels
    s_d    = sum_c query_c G^a_cd               the encoded structural pattern, [B, h, D, *grid]
    y_v    = sum_d s_d (G^b_vd + B_vd)          [B, h, c, *grid]

A backend is a pair of classes: one encodes (s from query and key), one mixes (y from s and value). Each holds what it derives
from the kernels on one grid (``prepare``) and is called with the tokens.
"""

from collections.abc import Callable
from importlib.util import find_spec
from math import prod
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from .lisa_circulant import EncodeCirculant, MixCirculant
from .lisa_dft import EncodeDFT, MixDFT
from .lisa_fft import EncodeFFT, MixFFT
from .precision import at_least_float
from .relative import circulant

# Where the O(N^2) products of the circulant form beat the FFT (measured on CPU: docs/benchmarks): encoding takes N products per
# number encoded, mixing N (1 / c + 1 / D).
CIRCULANT_ENCODE_PRODUCTS = 64
CIRCULANT_MIX_PRODUCTS = 32


# torch.export; PyTorch before 2.7 cannot tell.
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)


class EncodeReference(NamedTuple):
    """The equations as they stand, with circulant matrices, in O(N^2 c D)."""

    kernel: Tensor
    bias: Tensor | None

    prepare = classmethod(lambda cls, kernel, bias: cls(at_least_float(kernel), bias))

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        grid = query.shape[2:]
        g = torch.einsum("mcj,cdij->mcdi", key.flatten(2), circulant(self.kernel, grid))
        if self.bias is not None:
            g = g + self.bias[..., None]
        return torch.einsum("mci,mcdi->mdi", query.flatten(2), g).unflatten(2, grid)


class MixReference(NamedTuple):
    """The equations as they stand, with circulant matrices, in O(N^2 c D)."""

    kernel: Tensor
    bias: Tensor

    prepare = classmethod(lambda cls, kernel, bias: cls(at_least_float(kernel), bias))

    def __call__(self, s: Tensor, value: Tensor) -> Tensor:
        grid = value.shape[2:]
        g = torch.einsum("mcj,dij->mcdi", value.flatten(2), circulant(self.kernel, grid)) + self.bias[..., None]
        return torch.einsum("mdi,mcdi->mci", s.flatten(2), g).unflatten(2, grid)


DFT = (EncodeDFT, MixDFT)
_BACKENDS = {
    "reference": (EncodeReference, MixReference),
    "fft": (EncodeFFT, MixFFT),
    "circulant": (EncodeCirculant, MixCirculant),
    "dft": DFT,
}
BACKENDS = ("auto", *_BACKENDS, "triton")


class LiSAKernels(NamedTuple):
    """The kernels of :func:`lisa` made ready for one grid; worth keeping between calls with fixed parameters."""

    encode: Callable[[Tensor, Tensor], Tensor]
    mix: Callable[[Tensor, Tensor], Tensor]

    @classmethod
    def prepare(
        cls,
        kernel_a: Tensor,
        kernel_b: Tensor,
        bias: Tensor,
        bias_a: Tensor | None = None,
        *,
        grid: tuple[int, ...] | None = None,
        backend: str = "auto",
    ) -> "LiSAKernels":
        """Differentiable with respect to the kernels and biases; arguments and errors as :func:`lisa`'s.

        Kernels of another grid than ``grid`` are resampled as :func:`resize_kernel` does.
        """
        grid = tuple(kernel_b.shape[1:]) if grid is None else grid
        encode, mix = _choose(backend, kernel_b, grid, *bias.shape)

        def prepared(side: type, kernel: Tensor, bias: Tensor | None) -> Callable[[Tensor, Tensor], Tensor]:
            # The transform by matrices resamples by itself, on grids that are only known when an exported graph runs.
            return side.prepare(kernel, bias, grid) if side in DFT else side.prepare(resize_kernel(kernel, grid), bias)

        return cls(prepared(encode, kernel_a, bias_a), prepared(mix, kernel_b, bias))

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``[B, h, c, *grid]`` each -> ``[B, h, c, *grid]`` in the query's dtype."""
        q, k, v = (at_least_float(x).flatten(0, 1) for x in (query, key, value))
        return self.mix(self.encode(q, k), v).view(query.shape).to(query.dtype)


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
            the fastest on small grids of a CPU; ``'triton'`` is one fused kernel per side, for small grids of a GPU; ``'dft'``
            is made of real matrix products alone, for exports that know no complex numbers; ``'reference'`` is the sums as they
            stand, the oracle of the others. ``'auto'`` takes for each of the two sides the fastest at this grid, c and D, on a
            GPU by measuring once; and ``'dft'`` inside an export.

    Returns:
        ``[B, h, c, *grid]`` in the query's dtype; half precision is computed in fp32.

    Raises:
        ValueError: shapes that do not fit each other, or an unknown backend.
    """
    _check_shapes(query, key, value, kernel_a, kernel_b, bias, bias_a)
    return LiSAKernels.prepare(kernel_a, kernel_b, bias, bias_a, backend=backend)(query, key, value)


def _choose(backend: str, kernel_b: Tensor, grid: tuple[int, ...], c: int, num_patterns: int) -> tuple[type, type]:
    """The classes that encode and mix."""
    encode = mix = backend
    if backend == "auto":
        n = prod(grid)
        if torch.onnx.is_in_onnx_export() or _is_exporting():
            encode = mix = "dft"
        elif kernel_b.is_cuda:
            dtype = torch.promote_types(kernel_b.dtype, torch.float32)
            encode, mix = _fastest(grid, c, num_patterns, dtype, kernel_b.device)
        else:
            encode = "circulant" if n <= CIRCULANT_ENCODE_PRODUCTS else "fft"
            mix = "circulant" if n * (1 / c + 1 / num_patterns) <= CIRCULANT_MIX_PRODUCTS else "fft"
    return _classes(encode)[0], _classes(mix)[1]


def _classes(backend: str) -> tuple[type, type]:
    if backend == "triton":
        from .lisa_triton import EncodeTriton, MixTriton  # Triton comes with PyTorch for Linux only

        return EncodeTriton, MixTriton
    if backend not in _BACKENDS:
        raise ValueError(f"backend is {backend!r}; it must be one of {BACKENDS}")
    return _BACKENDS[backend]


_measured: dict[tuple, tuple[str, str]] = {}


@torch.compiler.assume_constant_result
def _fastest(
    grid: tuple[int, ...], c: int, num_patterns: int, dtype: torch.dtype, device: torch.device
) -> tuple[str, str]:
    """Which backend encodes and which mixes fastest on a GPU, measured at the first call for these arguments."""
    key = (grid, c, num_patterns, dtype, device)
    if key not in _measured:
        if torch.cuda.is_current_stream_capturing():  # nothing can be timed here
            return "fft", "fft"
        _measured[key] = _measure(*key)
    return _measured[key]


@torch.no_grad()
def _measure(
    grid: tuple[int, ...], c: int, num_patterns: int, dtype: torch.dtype, device: torch.device
) -> tuple[str, str]:
    n = prod(grid)
    names = ["fft"]
    if n <= 1024:  # beyond, the matrices of the circulant form are too large to try
        names.append("circulant")
    if dtype == torch.float32 and find_spec("triton") is not None:
        from .lisa_triton import MAX_TOKENS

        if n <= MAX_TOKENS:
            names.append("triton")
    # As many tokens as a batch of images has; what is in them and in the kernels makes no difference.
    tokens = torch.randn(max((1 << 16) // n, 1), c, *grid, dtype=dtype, device=device)
    s = tokens.new_ones(len(tokens), num_patterns, *grid)
    kernel_a, kernel_b = tokens.new_ones(c, num_patterns, *grid), tokens.new_ones(num_patterns, *grid)
    bias = tokens.new_ones(c, num_patterns)
    encode_times, mix_times = {}, {}
    for name in names:
        encode, mix = _classes(name)
        encode_times[name] = _seconds(encode.prepare(kernel_a, None), tokens, tokens)
        mix_times[name] = _seconds(mix.prepare(kernel_b, bias), s, tokens)
    return min(encode_times, key=encode_times.__getitem__), min(mix_times, key=mix_times.__getitem__)


def _seconds(function: Callable[..., Tensor], *tensors: Tensor) -> float:
    """The best of three samples of five calls, after two to warm up."""
    device, times = tensors[0].device, []
    for calls in (2, 5, 5, 5):
        torch.cuda.synchronize(device)
        start = perf_counter()
        for _ in range(calls):
            function(*tensors)
        torch.cuda.synchronize(device)
        times.append(perf_counter() - start)
    return min(times[1:])


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
