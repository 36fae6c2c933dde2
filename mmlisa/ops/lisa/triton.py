"""LiSA on small grids in one fused Triton kernel per side: nothing of size N c D leaves the chip.

A program holds the rows (channels) of a few heads. It transforms them once, by products with the cosines and sines of the
grid, on tensor cores; then, a block of tokens at a time, it multiplies the spectrum with each pattern's, transforms it back
and contracts the result with the query (encoding) or with s (mixing) where it stands. Real maps need half of the spectrum only.

The backward passes are those of :mod:`mmlisa.ops.lisa.fft`. On a machine without a GPU the kernel runs in Triton's interpreter
(``TRITON_INTERPRET=1``), where it is tested.

Names: R rows = heads of a program x c padded, F frequencies of the half spectrum, ``_2`` real and imaginary parts ``[..., 2]``.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..precision import at_least_fp32, no_autocast
from . import fft as fft_backend
from .common import TRITON_MAX_TOKENS, save_tensors
from .fft import EncodeFFT, MixFFT

ROWS, BLOCK = 32, 32


@dataclass(eq=False)
class EncodeTriton:
    """Key side: half spectra ``[D, c, F, 2]`` and bias ``[D, c]``, and what the backward pass needs."""

    spectra_2: Tensor
    bias: Tensor
    fft: EncodeFFT

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor | None) -> "EncodeTriton":
        """From ``kernel_a [c, D, *grid]`` and ``bias_a [c, D]``."""
        _check(kernel, prod(kernel.shape[2:]))
        plain_bias = kernel.new_zeros(kernel.shape[:2]) if bias is None else bias
        return cls(
            _half_spectra(kernel.transpose(0, 1), kernel.shape[2:]),
            at_least_fp32(plain_bias).detach().T.contiguous(),
            EncodeFFT.prepare(kernel, bias),
        )

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """``[M, c, *grid]`` each -> ``[M, D, *grid]``."""
        return _encode(query, key, self.fft.kernel_f, self.fft.bias, self.fft.num_patterns, self.spectra_2, self.bias)


@dataclass(eq=False)
class MixTriton:
    """Value side: half spectra ``[D, 1, F, 2]`` and bias ``[D, c]``, and what the backward pass needs."""

    spectra_2: Tensor
    bias: Tensor
    fft: MixFFT

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor) -> "MixTriton":
        """From ``kernel_b [D, *grid]`` and ``bias [c, D]``."""
        _check(kernel, prod(kernel.shape[1:]))
        return cls(
            _half_spectra(kernel[:, None], kernel.shape[1:]),
            at_least_fp32(bias).detach().T.contiguous(),
            MixFFT.prepare(kernel, bias),
        )

    def __call__(self, s: Tensor, value: Tensor) -> Tensor:
        """``[M, D, *grid]``, ``[M, c, *grid]`` -> ``[M, c, *grid]``."""
        return _mix(s, value, self.fft.kernel_f, self.fft.bias, self.spectra_2, self.bias)


def _check(kernel: Tensor, n: int) -> None:
    if n > TRITON_MAX_TOKENS or kernel.dtype == torch.float64:
        raise ValueError(
            f"backend='triton' is for at most {TRITON_MAX_TOKENS} tokens in fp32, got {n} in {kernel.dtype}; take 'fft'"
        )


def _half_spectra(kernel: Tensor, grid: torch.Size) -> Tensor:
    """``[D, c or 1, *grid]`` -> ``[D, c or 1, F, 2]``, with the 1/N of the inverse transform.

    A frequency that stands for itself and its conjugate counts twice.
    """
    kernel = at_least_fp32(kernel).detach()
    with no_autocast(kernel.device):
        half = torch.fft.rfftn(kernel, dim=tuple(range(2, kernel.ndim)), norm="forward")
    last = torch.arange(half.shape[-1], device=kernel.device)
    half = half * torch.where((last == 0) | (2 * last == grid[-1]), 1.0, 2.0)
    return torch.view_as_real(half.flatten(2)).contiguous()


@lru_cache(maxsize=16)
def _waves(grid: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[N, F]`` of the half spectrum, in the order of ``rfftn``."""
    sizes = [*grid[:-1], grid[-1] // 2 + 1]
    tokens = torch.cartesian_prod(*(torch.arange(n) for n in grid)).view(prod(grid), -1)
    frequencies = torch.cartesian_prod(*(torch.arange(n) for n in sizes)).view(prod(sizes), -1)
    turns = sum(torch.outer(tokens[:, i], frequencies[:, i]) % n / n for i, n in enumerate(grid))
    angle = 2 * torch.pi * turns.double()
    return angle.cos().float().to(device), angle.sin().float().to(device)


@triton.jit
def _lisa_kernel(
    x_ptr,  # [M, c, N]: key or value
    other_ptr,  # [M, c, N] query, or [M, D, N] s
    out_ptr,  # [M, D, N] s, or [M, c, N]
    spectra_ptr,  # [D, c or 1, F, 2]
    bias_ptr,  # [D, c]
    cos_ptr,  # [N, F]
    sin_ptr,  # [N, F]
    num_heads,  # M
    c,
    n,
    num_frequencies,
    num_patterns,
    ENCODE: tl.constexpr,
    PRECISION: tl.constexpr,
    HEADS: tl.constexpr,
    C: tl.constexpr,
    F: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(0) * HEADS + tl.arange(0, HEADS * C) // C
    channel = tl.arange(0, HEADS * C) % C
    row_ok = (head < num_heads) & (channel < c)
    row = head * c + channel
    group = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    f = tl.arange(0, F)
    f_ok = f < num_frequencies

    real = tl.zeros((HEADS * C, F), dtype=tl.float32)
    imaginary = tl.zeros((HEADS * C, F), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        token = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row[:, None] * n + token[None, :], mask=row_ok[:, None] & (token < n)[None, :], other=0.0)
        wave = token[:, None] * num_frequencies + f[None, :]
        wave_ok = (token < n)[:, None] & f_ok[None, :]
        real += tl.dot(x, tl.load(cos_ptr + wave, mask=wave_ok, other=0.0), input_precision=PRECISION)
        imaginary -= tl.dot(x, tl.load(sin_ptr + wave, mask=wave_ok, other=0.0), input_precision=PRECISION)

    for start in range(0, n, BLOCK):
        token = start + tl.arange(0, BLOCK)
        wave = token[None, :] * num_frequencies + f[:, None]
        wave_ok = (token < n)[None, :] & f_ok[:, None]
        cos = tl.load(cos_ptr + wave, mask=wave_ok, other=0.0)
        sin = tl.load(sin_ptr + wave, mask=wave_ok, other=0.0)
        row_token = row[:, None] * n + token[None, :]
        row_token_ok = row_ok[:, None] & (token < n)[None, :]
        pattern_ok = (group < num_heads)[:, None] & (token < n)[None, :]
        if ENCODE:
            query = tl.load(other_ptr + row_token, mask=row_token_ok, other=0.0)
        y = tl.zeros((HEADS * C, BLOCK), dtype=tl.float32)
        for d in range(num_patterns):
            if ENCODE:
                at = ((d * c + channel[:, None]) * num_frequencies + f[None, :]) * 2
                at_ok = (channel < c)[:, None] & f_ok[None, :]
            else:
                at = (d * num_frequencies + f[None, :]) * 2
                at_ok = f_ok[None, :]
            w_real = tl.load(spectra_ptr + at, mask=at_ok, other=0.0)
            w_imaginary = tl.load(spectra_ptr + at + 1, mask=at_ok, other=0.0)
            g = tl.dot(real * w_real - imaginary * w_imaginary, cos, input_precision=PRECISION)
            g -= tl.dot(real * w_imaginary + imaginary * w_real, sin, input_precision=PRECISION)
            g += tl.load(bias_ptr + d * c + channel, mask=channel < c, other=0.0)[:, None]
            pattern = (group[:, None] * num_patterns + d) * n + token[None, :]
            if ENCODE:
                s = tl.sum(tl.reshape(query * g, (HEADS, C, BLOCK)), axis=1)
                tl.store(out_ptr + pattern, s, mask=pattern_ok)
            else:
                s = tl.load(other_ptr + pattern, mask=pattern_ok, other=0.0)
                y += tl.reshape(s[:, None, :] * tl.reshape(g, (HEADS, C, BLOCK)), (HEADS * C, BLOCK))
        if not ENCODE:
            tl.store(out_ptr + row_token, y, mask=row_token_ok)


def _launch(x: Tensor, other: Tensor, out: Tensor, spectra_2: Tensor, bias: Tensor, encode: bool) -> Tensor:
    if not x.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f"backend='triton' needs a GPU, the tokens are on {x.device}; take 'auto'")
    num_heads, c, *grid = x.shape
    cos, sin = _waves(tuple(grid), x.device)
    channels = triton.next_power_of_2(c)
    heads = max(ROWS // channels, 1)
    matmul = torch.backends.cuda.matmul
    # PyTorch 2.9 replaced the switch, and refuses to read the old one after the new one was set.
    is_tf32 = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    # Three products of TF32 parts give fp32's accuracy on tensor cores.
    precision = "tf32" if x.is_cuda and is_tf32 else "tf32x3"
    with torch.cuda.device_of(x):  # Triton launches on the current device
        _lisa_kernel[(triton.cdiv(num_heads, heads),)](
            x.contiguous(),
            other.contiguous(),
            out,
            spectra_2.contiguous(),  # a compiled graph may hand over an FFT's own strides
            bias.contiguous(),
            cos,
            sin,
            num_heads,
            c,
            cos.shape[0],
            cos.shape[1],
            len(spectra_2),
            ENCODE=encode,
            PRECISION=precision,
            HEADS=heads,
            C=channels,
            F=max(triton.next_power_of_2(cos.shape[1]), 16),
            BLOCK=BLOCK,
        )
    return out


@torch.library.custom_op("mmlisa::lisa_encode_triton", mutates_args=())
def _encode(
    query: Tensor, key: Tensor, kernel_f: Tensor, bias_f: Tensor, num_patterns: int, spectra_2: Tensor, bias: Tensor
) -> Tensor:
    s = query.new_empty(query.shape[0], num_patterns, *query.shape[2:])
    return _launch(key, query, s, spectra_2, bias, encode=True)


@_encode.register_fake
def _(query, key, kernel_f, bias_f, num_patterns, spectra_2, bias):
    return query.new_empty(query.shape[0], num_patterns, *query.shape[2:])


@torch.library.custom_op("mmlisa::lisa_mix_triton", mutates_args=())
def _mix(s: Tensor, value: Tensor, kernel_f: Tensor, bias_f: Tensor, spectra_2: Tensor, bias: Tensor) -> Tensor:
    return _launch(value, s, value.new_empty(value.shape), spectra_2, bias, encode=False)


@_mix.register_fake
def _(s, value, kernel_f, bias_f, spectra_2, bias):
    return value.new_empty(value.shape)


_encode.register_autograd(
    lambda ctx, grad: (*fft_backend.encode_backward(grad, *ctx.saved_tensors), None, None, None),
    setup_context=save_tensors,
)
_mix.register_autograd(
    lambda ctx, grad: (*fft_backend.mix_backward(grad, *ctx.saved_tensors), None, None),
    setup_context=save_tensors,
)
