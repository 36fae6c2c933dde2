"""LiSA by discrete Fourier transforms as real matrix products: no complex numbers, no FFT, nothing an export cannot express.

A spectrum is ``[..., 2, *frequencies]``: real and imaginary parts before the axes of the grid, with the frequencies 0 to n / 2 of
the last axis, which determine the others. In this order no transform transposes its input.

:class:`EncodeRows` is for small grids. It transforms the first axis only, and the product with the spectrum contains the
convolution over the other axes, as one matrix per channel and frequency.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import pi, prod

import torch
from torch import Tensor

from ..precision import at_least_fp32, no_autocast
from ..relative import circulant
from ..tracing import as_constants


@dataclass(eq=False)
class EncodeDFT:
    """Key side: spectra over N, ``[D, c, 2, *frequencies]``, and the bias ``[c, D]``."""

    kernel_f: Tensor
    bias: Tensor | None

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor | None, grid: Sequence[int] | None = None) -> "EncodeDFT":
        """From ``kernel_a [c, D, *its grid]`` and ``bias_a [c, D]``; for tokens on ``grid``, or on the kernel's own."""
        grid = kernel.shape[2:] if grid is None else grid
        with no_autocast(kernel.device):
            return cls(_transform(at_least_fp32(kernel.transpose(0, 1)), grid) / prod(grid), _float(bias))

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """``[M, c, *grid]`` each -> ``[M, D, *grid]``."""
        with no_autocast(query.device):
            s = torch.stack([(query * g).sum(1) for g in _convolve(key, self.kernel_f)], dim=1)
            return _add_bias(s, query, self.bias)


@dataclass(eq=False)
class MixDFT:
    """Value side: spectra over N, ``[D, 1, 2, *frequencies]``, and the bias ``[c, D]``."""

    kernel_f: Tensor
    bias: Tensor

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor, grid: Sequence[int] | None = None) -> "MixDFT":
        """From ``kernel_b [D, *its grid]`` and ``bias [c, D]``; for tokens on ``grid``, or on the kernel's own."""
        grid = kernel.shape[1:] if grid is None else grid
        with no_autocast(kernel.device):
            return cls(_transform(at_least_fp32(kernel[:, None]), grid) / prod(grid), at_least_fp32(bias))

    def __call__(self, s: Tensor, value: Tensor) -> Tensor:
        """``[M, D, *grid]``, ``[M, c, *grid]`` -> ``[M, c, *grid]``."""
        with no_autocast(value.device):
            y = (self.bias @ s.flatten(2)).view(value.shape)
            for weight, g in zip(s.split(1, dim=1), _convolve(value, self.kernel_f), strict=True):
                y = y + weight * g
            return y


@dataclass(eq=False)
class EncodeRows:
    """Key side: matrices ``[c, F, 2, 2 R, D R]`` from R tokens of a frequency to its R sums of each pattern, and the bias.

    The first axis has F = n / 2 + 1 frequencies, the others R tokens. The axes of 2 are the real and imaginary parts of the
    result and, before R, of the token.
    """

    matrices: Tensor
    bias: Tensor | None

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor | None) -> "EncodeRows":
        """From ``kernel_a [c, D, *grid]`` and ``bias_a [c, D]``."""
        kernel = at_least_fp32(kernel)
        n, *rest = kernel.shape[2:]
        with no_autocast(kernel.device):
            columns = kernel.flatten(3) if rest else kernel[..., None]
            spectrum = (_forward(n, kernel) @ columns).unflatten(2, (2, -1))  # [c, D, 2, F, R]
            rest = rest or [1]
            real, imaginary = circulant(spectrum.unflatten(-1, rest), rest).unbind(2)  # [c, D, F, R (i), R (j)]
            parts = [torch.stack(pair, 3) for pair in ((real, -imaginary), (imaginary, real))]
            matrices = torch.stack(parts, 3)  # [c, D, F, 2, 2, R (i), R (j)]
        return cls(matrices.permute(0, 2, 3, 4, 6, 1, 5).flatten(5).flatten(3, 4).contiguous(), _float(bias))

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """``[M, c, *grid]`` each -> ``[M, D, *grid]``."""
        m, c, n = query.shape[:3]
        with no_autocast(query.device):
            forward = _forward(n, key)
            spectrum = (forward @ key.transpose(0, 1).reshape(c, m, n, -1)).unflatten(2, (2, -1))  # [c, M, 2, F, R]
            spectrum = spectrum.permute(0, 3, 1, 2, 4).flatten(3)[:, :, None]  # [c, F, 1, M, 2 R]
            products = (spectrum @ self.matrices).transpose(1, 2)  # [c, 2, F, M, D R]
            with as_constants(query.shape[2:]):
                inverse = _weigh(forward, n).T.contiguous() / n
            g = (inverse @ products.flatten(3).flatten(1, 2)).view(c, n, m, -1, spectrum.shape[-1] // 2)
            s = (query.reshape(m, c, n, -1).permute(1, 2, 0, 3)[:, :, :, None] * g).sum(0)  # [n, M, D, R]
            s = s.permute(1, 2, 0, 3).reshape(m, -1, *query.shape[2:])
            return _add_bias(s, query, self.bias)


def _float(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else at_least_fp32(bias)


def _add_bias(s: Tensor, query: Tensor, bias: Tensor | None) -> Tensor:
    return s if bias is None else s + (bias.T @ query.flatten(2)).view(s.shape)


def _convolve(tokens: Tensor, kernel_f: Tensor) -> Iterator[Tensor]:
    """``[M, c, *grid]`` and spectra ``[D, c or 1, 2, *frequencies]`` -> ``[M, c, *grid]`` for each of the D patterns.

    The patterns are separate products, because the numbers of all of them would not fit the cache.
    """
    grid = tokens.shape[2:]
    axis = -1 - len(grid)
    matrices = _matrices(grid, grid, tokens)
    spectrum = _multiply(tokens, matrices)
    real, imaginary = spectrum.unbind(axis)
    turned = torch.stack([-imaginary, real], dim=axis)  # times i
    with as_constants(grid):
        inverse = [matrix.T.contiguous() for matrix in matrices[:-1]], _weigh(matrices[-1].T, grid[-1])
    for pattern in kernel_f.unbind():
        a, b = pattern.split(1, dim=axis)
        yield _inverse(spectrum * a + turned * b, *inverse)


def _transform(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[..., *its grid]`` -> its spectrum on ``grid``: what ``resize_kernel`` and a transform give."""
    return _multiply(x, _matrices(x.shape[x.ndim - len(grid) :], grid, x))


def _multiply(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """``[..., *its grid]`` -> its spectrum, by the matrices of :func:`_matrices`."""
    *lefts, last = matrices
    x = (x @ last).unflatten(-1, (2, -1))
    for axis, matrix in zip(range(len(lefts), 0, -1), reversed(lefts), strict=True):
        # [..., n, 2, *frequencies] -> [..., 2, frequencies of n, *frequencies]
        rest = x.shape[x.ndim - 1 - len(lefts) + axis :]
        x = (matrix @ x.flatten(-len(rest)).flatten(-3, -2)).unflatten(-2, (2, -1)).unflatten(-1, rest)
    return x


def _inverse(x: Tensor, lefts: Sequence[Tensor], last: Tensor) -> Tensor:
    """``[..., 2, *frequencies]`` -> ``[..., *grid]``, N times the inverse transform, by the transposed matrices."""
    for axis, matrix in enumerate(lefts, 1):
        rest = x.shape[x.ndim - 1 - len(lefts) + axis :]
        x = (matrix @ x.flatten(-len(rest)).flatten(-3, -2)).unflatten(-2, (-1, 2)).unflatten(-1, rest)
    return x.flatten(-2) @ last


def _matrices(own: Sequence[int], grid: Sequence[int], like: Tensor) -> list[Tensor]:
    """Transforms of ``own`` taps to the frequencies of ``grid``, by axis.

    Those of the last axis are ``[n, 2 F]``, from real numbers to F = n / 2 + 1 frequencies; those of the others ``[2 F, 2 n]``,
    from n pairs to 2 x F parts.
    """
    with as_constants(grid):
        cos, sin = _waves(own[-1], grid[-1], grid[-1] // 2 + 1, like)
        matrices = [torch.cat([cos, -sin]).T.contiguous()]
        for n, size in zip(own[:-1], grid[:-1], strict=True):
            cos, sin = _waves(n, size, size, like)
            matrices.append(
                torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)]).flatten(2).flatten(0, 1)
            )
    return [*matrices[1:], matrices[0]]


def _forward(n: int, like: Tensor) -> Tensor:
    """``[2 F, n]``: from n real numbers to the parts of F frequencies."""
    (matrix,) = _matrices((n,), (n,), like)
    with as_constants((n,)):
        return matrix.T.contiguous()


def _weigh(matrix: Tensor, n: int) -> Tensor:
    """A forward matrix ``[2 F, n]`` with the weights of the inverse: a frequency counts for its negative, too."""
    frequency = torch.arange(n // 2 + 1, device=matrix.device)
    weight = 2 - ((frequency == 0) | (2 * frequency == n)).to(matrix.dtype)
    return matrix * weight.repeat(2)[:, None]


def _waves(own: int, size: int, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of ``2 pi frequency offset / size``, ``[count, own]`` each, at the signed offsets of ``own`` taps."""
    offset = torch.arange(own, device=like.device, dtype=torch.float64)
    offset = torch.where(offset > own // 2, offset - own, offset)
    frequency = torch.arange(count, device=like.device, dtype=torch.float64)
    angle = torch.outer(frequency, offset).remainder(size) * (2 * pi / size)  # small angles keep fp32 exact
    # The Nyquist tap of an even size stands for both signs: no sine.
    sine = (angle - pi / 2).cos() * (2 * offset.abs() != own)
    return angle.cos().to(like.dtype), sine.to(like.dtype)
