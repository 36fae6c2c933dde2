"""LiSA by discrete Fourier transforms as real matrix products: no complex numbers, no FFT, nothing an export cannot express.

A spectrum is ``[..., 2, F]``: real and imaginary parts before the frequencies of all axes. Those from 0 to n / 2 of the last axis
determine the others. In this order no transform transposes its input.

:func:`prepare_encode_rows` is for small grids. It transforms the first axis only, and the product with the spectrum contains the
convolution over the other axes, as one matrix per channel and frequency.
"""

from collections.abc import Sequence
from functools import partial
from math import pi, prod

import torch
from torch import Tensor

from ..context import as_constants, at_least_fp32, no_autocast
from ..relative import circulant
from .fft import Side


def prepare_encode(kernel: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Side:
    """Return the function that encodes on any ``grid`` with the spectra ``[D, c, 2, F]``."""
    return partial(_encode, kernel_f=_spectrum(kernel.transpose(0, 1), grid), bias=_float(bias))


def prepare_mix(kernel: Tensor, bias: Tensor, grid: Sequence[int]) -> Side:
    """Return the function that mixes on any ``grid`` with the spectra ``[D, 1, 2, F]``."""
    return partial(_mix, kernel_f=_spectrum(kernel[:, None], grid), bias=at_least_fp32(bias))


def prepare_encode_rows(kernel: Tensor, bias: Tensor | None) -> Side:
    """Return the function that encodes with the matrices ``[c, F, 2, 2 R, D R]``.

    For each channel and frequency, they map R tokens to R sums for each of D patterns. The first axis has
    F = n / 2 + 1 frequencies, the others R tokens. The axes of 2 are the real and imaginary parts of the result and, before R,
    of the token.
    """
    kernel = at_least_fp32(kernel)
    n, *others = kernel.shape[2:]
    with no_autocast(kernel.device):
        columns = kernel.flatten(3) if others else kernel[..., None]
        spectrum = (_last(n, kernel) @ columns).unflatten(2, (2, -1))  # [c, D, 2, F, R]
        others = others or [1]
        real, imaginary = circulant(spectrum.unflatten(-1, others), others).unbind(2)  # [c, D, F, R (i), R (j)]
        pairs = [torch.stack(pair, 3) for pair in ((real, -imaginary), (imaginary, real))]
        matrices = torch.stack(pairs, 3).permute(0, 2, 3, 4, 6, 1, 5)  # [c, F, 2, 2, R (j), D, R (i)]
    return partial(_encode_rows, matrices=matrices.flatten(5).flatten(3, 4).contiguous(), bias=_float(bias))


def _encode(query: Tensor, key: Tensor, kernel_f: Tensor, bias: Tensor | None) -> Tensor:
    with no_autocast(query.device):
        return _add_bias((query[:, None] * _convolve(key, kernel_f)).sum(2), query, bias)


def _mix(s: Tensor, value: Tensor, kernel_f: Tensor, bias: Tensor) -> Tensor:
    with no_autocast(value.device):
        y = (s[:, :, None] * _convolve(value, kernel_f)).sum(1)
        return y + (bias @ s.flatten(2)).view(value.shape)


def _encode_rows(query: Tensor, key: Tensor, matrices: Tensor, bias: Tensor | None) -> Tensor:
    m, c, n = query.shape[:3]
    with no_autocast(query.device):
        with as_constants((n,)):
            forward = _last(n, key)
            inverse = _weigh(forward, n).T / n
        spectrum = (forward @ key.transpose(0, 1).reshape(c, m, n, -1)).unflatten(2, (2, -1))  # [c, M, 2, F, R]
        spectrum = spectrum.permute(0, 3, 1, 2, 4).flatten(3)[:, :, None]  # [c, F, 1, M, 2 R]
        products = (spectrum @ matrices).transpose(1, 2)  # [c, 2, F, M, D R]
        g = (inverse @ products.flatten(3).flatten(1, 2)).view(c, n, m, -1, spectrum.shape[-1] // 2)
        s = (query.reshape(m, c, n, -1).permute(1, 2, 0, 3)[:, :, :, None] * g).sum(0)  # [n, M, D, R]
        return _add_bias(s.permute(1, 2, 0, 3).reshape(m, -1, *query.shape[2:]), query, bias)


def _float(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else at_least_fp32(bias)


def _add_bias(s: Tensor, query: Tensor, bias: Tensor | None) -> Tensor:
    return s if bias is None else s + (bias.T @ query.flatten(2)).view(s.shape)


def _convolve(tokens: Tensor, kernel_f: Tensor) -> Tensor:
    """``[M, c, *grid]`` and spectra ``[D, c or 1, 2, F]`` -> ``[M, D, c, *grid]``."""
    grid = tokens.shape[2:]
    matrices = _matrices(grid, tokens)
    with as_constants(grid):
        lefts, last = [matrix.T for matrix in matrices[:-1]], _weigh(matrices[-1], grid[-1])
    spectrum = _multiply(tokens, matrices)[:, None]
    real, imaginary = spectrum.unbind(-2)
    turned = torch.stack([-imaginary, real], dim=-2)  # times i
    a, b = kernel_f.split(1, dim=-2)
    y = spectrum * a + turned * b
    lead = y.shape[:-2]
    for n, matrix in zip(grid, lefts, strict=False):
        y = matrix @ y.reshape(*lead, 2 * n, -1)  # [..., n x 2, frequencies of the later axes]
        lead = (*lead, n)
    return y.reshape(*lead, -1) @ last


def _spectrum(kernel: Tensor, grid: Sequence[int]) -> Tensor:
    """``[..., *its grid]`` -> its spectrum on ``grid`` divided by N: what ``resize_kernel`` and a transform give."""
    with no_autocast(kernel.device):
        kernel = at_least_fp32(kernel)
        return _multiply(kernel, _matrices(grid, kernel, kernel.shape[-len(grid) :])) / prod(grid)


def _multiply(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """``[..., *its grid]`` -> its spectrum ``[..., 2, F]``, by the matrices of :func:`_matrices`."""
    *lefts, last = matrices
    lead = x.ndim - len(matrices)
    x = x @ last.T
    for axis, matrix in reversed(list(enumerate(lefts, lead))):
        # [..., n, 2 x frequencies] -> [..., n x 2, frequencies] -> [..., 2 x frequencies of n, frequencies]
        x = matrix @ x.reshape(*x.shape[:axis], 2 * x.shape[axis], -1)
    return x.reshape(*x.shape[:lead], 2, -1)


def _matrices(grid: Sequence[int], like: Tensor, taps: Sequence[int] | None = None) -> list[Tensor]:
    """Transforms of tokens on ``grid``, or of a kernel with ``taps``, to the frequencies of ``grid``, by axis."""
    taps = [None] * len(grid) if taps is None else taps
    with as_constants(grid):
        lefts = [_waves(n, size, 2, like).reshape(2 * n, -1) for n, size in zip(grid[:-1], taps[:-1], strict=True)]
        return [*lefts, _last(grid[-1], like, taps[-1])]


def _last(n: int, like: Tensor, taps: int | None = None) -> Tensor:
    """``[2 F, taps]``: from real numbers along the last axis to the parts of F = n / 2 + 1 frequencies."""
    return _waves(n, taps, 1, like).reshape(2 * (n // 2 + 1), -1)


def _weigh(last: Tensor, n: int) -> Tensor:
    """:func:`_last` of n tokens with the weights of the inverse: a frequency counts for its negative, too."""
    frequency = torch.arange(n // 2 + 1, device=last.device)
    weight = 1 + torch.minimum(frequency, n - 2 * frequency).clamp(max=1)
    return last * weight.repeat(2).unsqueeze(1)


def _waves(n: int, taps: int | None, count: int, like: Tensor) -> Tensor:
    """``[2, frequencies, taps, count]``: what the real part (and the imaginary) of a tap adds to the parts of a frequency.

    Without ``taps``, the n tokens themselves. Real numbers (``count=1``) need the frequencies to n / 2 only.
    """
    options = dict(device=like.device, dtype=torch.float64)
    offset = torch.arange(n if taps is None else taps, **options)
    if taps is not None:
        offset = torch.where(offset > taps // 2, offset - taps, offset)
    frequency = torch.arange(n if count == 2 else n // 2 + 1, **options)
    angle = torch.outer(frequency, offset).remainder(n) * (2 * pi / n)  # small angles keep fp32 exact
    cos, sin = angle.cos(), (angle - pi / 2).cos()
    if taps is not None:  # the Nyquist tap of an even size stands for both signs: no sine
        sin = sin * (2 * offset.abs() != taps)
    real, imaginary = (cos, sin)[:count], (-sin, cos)[:count]
    return torch.stack([torch.stack(real, -1), torch.stack(imaginary, -1)]).to(like.dtype)
