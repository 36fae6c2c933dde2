"""LiSA (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", journal version, Sec. 4.3).

Shapes: B batch, h heads, c channels of a head, D structural patterns, grid the token grid of one to three axes, N its size::

    G^a_cd = key_c (*) W^a_cd (+ B^a_cd)        circular convolution over the grid, [B, h, c, D, *grid]
    G^b_vd = value_v (*) W^b_d                  the D kernels are shared by all channels
    s_d    = sum_c query_c G^a_cd               the encoded structural pattern, [B, h, D, *grid]
    y_v    = sum_d s_d (G^b_vd + B_vd)          [B, h, c, *grid]

A backend is a pair of functions, ``prepare_encode`` and ``prepare_mix``. They derive from the kernels ``kernel_a [c, D, *grid]``
and ``kernel_b [D, *grid]`` and their biases ``[c, D]`` what one grid needs, and return functions of the tokens: the first encodes
(s from query and key), the second mixes (y from s and value).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor

from mmlisa.errors import UserError

from ..context import at_least_fp32, check_shape, is_exporting
from ..relative import circulant as to_matrix
from ..relative import resize_kernel
from . import circulant, dft, fft
from .fft import Side


def _encode(query: Tensor, key: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """The equations as they stand, with circulant matrices, in O(N² c D): the oracle of the backends."""
    grid = query.shape[2:]
    g = torch.einsum("mcj,cdij->mcdi", key.flatten(2), to_matrix(kernel, grid))
    if bias is not None:
        g = g + bias[..., None]
    return torch.einsum("mci,mcdi->mdi", query.flatten(2), g).unflatten(2, grid)


def _mix(s: Tensor, value: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    grid = value.shape[2:]
    g = torch.einsum("mcj,dij->mcdi", value.flatten(2), to_matrix(kernel, grid)) + bias[..., None]
    return torch.einsum("mdi,mcdi->mci", s.flatten(2), g).unflatten(2, grid)


def _prepare_reference(side: Side, kernel: Tensor, bias: Tensor | None) -> Side:
    return partial(side, kernel=at_least_fp32(kernel), bias=bias)


# The functions that prepare a kernel and a bias for one grid, to encode and to mix.
_SIDES = {
    "reference": (partial(_prepare_reference, _encode), partial(_prepare_reference, _mix)),
    "fft": (fft.prepare_encode, fft.prepare_mix),
    "circulant": (circulant.prepare_encode, circulant.prepare_mix),
    "dft": (dft.prepare_encode, dft.prepare_mix),
    "rows": (dft.prepare_encode_rows, circulant.prepare_mix),
}
BACKENDS = ("auto", *_SIDES)

# The largest :func:`sizes` for which the circulant form encodes, and for which it mixes; above, the FFT does. Measured on a CPU
# at commit 130d0e2: mixing by FFT becomes the faster form between the sizes 27 and 37 (c = 16, D = 8). Unmeasured on other
# devices, which get the circulant form only where its matrices are tiny. Nothing is timed when a model runs, so a resumed job and
# every rank of a distributed one choose alike.
THRESHOLDS = {"cpu": (64, 32), "cuda": (64, 16)}
# Tokens up to which an export of a fixed size takes 'rows'. Above, 'dft' is faster in onnxruntime (commit 130d0e2).
EXPORT_ROWS = 400


def sizes(grid: Sequence[int], c: int, num_patterns: int) -> tuple[float, float]:
    """Products that the circulant form takes for each number encoded, N, and mixed: N² (c + D) of a head, divided by N c D."""
    return prod(grid), prod(grid) * (1 / c + 1 / num_patterns)


def choose(device: torch.device, grid: Sequence[int], c: int, num_patterns: int) -> tuple[str, str]:
    """Return the backends that encode and mix under ``backend='auto'``."""
    if torch.onnx.is_in_onnx_export() or is_exporting():
        is_small = all(isinstance(n, int) for n in grid) and prod(grid) <= EXPORT_ROWS
        return ("rows", "rows") if is_small else ("dft", "dft")
    limits = THRESHOLDS["cpu" if device.type in ("cpu", "meta") else "cuda"]
    pairs = zip(sizes(grid, c, num_patterns), limits, strict=True)
    encode, mix = ("circulant" if size <= limit else "fft" for size, limit in pairs)
    return encode, mix


def prepare_side(backend: str, mixes: bool, kernel: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Side:
    """Return the function that encodes or mixes on ``grid``; UserError for an unknown backend."""
    if backend not in _SIDES:
        raise UserError(f"backend is {backend!r}; it must be one of {BACKENDS}")
    prepare = _SIDES[backend][mixes]
    # The transform by matrices resamples, too, to grids that are known only when an exported graph runs.
    return prepare(kernel, bias, grid) if backend == "dft" else prepare(resize_kernel(kernel, grid), bias)


@dataclass(eq=False)
class LiSAKernels:
    """The kernels of :func:`lisa` prepared for one grid; worth keeping between calls with fixed parameters."""

    encode: Side
    mix: Side

    @classmethod
    def prepare(
        cls,
        kernel_a: Tensor,
        kernel_b: Tensor,
        bias: Tensor,
        bias_a: Tensor | None = None,
        *,
        grid: Sequence[int] | None = None,
        backend: str = "auto",
    ) -> "LiSAKernels":
        """Prepare kernels and biases of :func:`lisa` for the tokens' grid (None: that of the kernels), differentiably."""
        grid = tuple(kernel_b.shape[1:]) if grid is None else grid
        encode, mix = choose(kernel_b.device, grid, *bias.shape) if backend == "auto" else (backend, backend)
        return cls(
            prepare_side(encode, False, kernel_a, bias_a, grid),
            prepare_side(mix, True, kernel_b, bias, grid),
        )

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``[B, h, c, *grid]`` each -> ``[B, h, c, *grid]`` in the dtype of the value."""
        s = self.encode(at_least_fp32(query).flatten(0, 1), at_least_fp32(key).flatten(0, 1))
        return self.mix(s, at_least_fp32(value).flatten(0, 1)).view(value.shape).to(value.dtype)


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
        backend: ``'fft'`` is log-linear in N; ``'circulant'`` multiplies by circulant matrices, fastest on small grids;
            ``'dft'`` consists of real matrix products alone, for exports without complex numbers; ``'rows'`` is its form for
            small grids, with larger matrices in fewer products; ``'reference'`` evaluates the sums as they stand, the oracle
            of the others. ``'auto'`` compares the two sides with :data:`THRESHOLDS`, and takes ``'dft'`` or ``'rows'`` in an
            export.

    Returns:
        ``[B, h, c, *grid]`` in the dtype of the value; half precision is computed in fp32.

    Raises:
        UserError: shapes that do not fit each other, or an unknown backend.
    """
    if query.ndim < 4 or not query.shape == key.shape == value.shape:
        raise UserError(
            "query, key and value must be [B, h, c, *grid] of one shape, got "
            f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
        )
    c, grid, num_patterns = query.shape[2], query.shape[3:], kernel_b.shape[0]
    check_shape("kernel_a", kernel_a, (c, num_patterns, *grid))
    check_shape("kernel_b", kernel_b, (num_patterns, *grid))
    check_shape("bias", bias, (c, num_patterns))
    check_shape("bias_a", bias_a, (c, num_patterns))
    return LiSAKernels.prepare(kernel_a, kernel_b, bias, bias_a, backend=backend)(query, key, value)
