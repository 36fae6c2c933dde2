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

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mmlisa.errors import UserError

from ..context import at_least_fp32
from .common import Side
from .dispatch import choose, sides
from .filters import resize_kernel


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
        grid: tuple[int, ...] | None = None,
        backend: str = "auto",
    ) -> "LiSAKernels":
        """Prepare kernels and biases of :func:`lisa` for the tokens' grid (None: that of the kernels), differentiably."""
        grid = tuple(kernel_b.shape[1:]) if grid is None else grid
        encode = mix = backend
        if backend == "auto":
            encode, mix = choose(kernel_b.device, grid, *bias.shape)
        return cls(_prepare(sides(encode)[0], kernel_a, bias_a, grid), _prepare(sides(mix)[1], kernel_b, bias, grid))

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``[B, h, c, *grid]`` each -> ``[B, h, c, *grid]`` in the dtype of the value."""
        s = self.encode(at_least_fp32(query).flatten(0, 1), at_least_fp32(key).flatten(0, 1))
        return self.mix(s, at_least_fp32(value).flatten(0, 1)).view(value.shape).to(value.dtype)


def _prepare(prepare: Callable[..., Side], kernel: Tensor, bias: Tensor | None, grid: tuple[int, ...]) -> Side:
    # The transform by matrices resamples, too, to grids that are known only when an exported graph runs.
    return prepare(kernel, bias, grid) if prepare in sides("dft") else prepare(resize_kernel(kernel, grid), bias)


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
            of the others. ``'auto'`` looks up the two sides in the table of
            :mod:`mmlisa.ops.circular.dispatch`, and takes ``'dft'`` or ``'rows'`` in an export.

    Returns:
        ``[B, h, c, *grid]`` in the dtype of the value; half precision is computed in fp32.

    Raises:
        UserError: shapes that do not fit each other, or an unknown backend.
    """
    _check_shapes(query, key, value, kernel_a, kernel_b, bias, bias_a)
    return LiSAKernels.prepare(kernel_a, kernel_b, bias, bias_a, backend=backend)(query, key, value)


def _check_shapes(query, key, value, kernel_a, kernel_b, bias, bias_a) -> None:
    if query.ndim < 4 or not query.shape == key.shape == value.shape:
        raise UserError(
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
            raise UserError(f"{name} has shape {tuple(tensor.shape)}; these tokens and patterns need {shape}")
