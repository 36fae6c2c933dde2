"""LiSA by FFT: two patterns per complex transform, streamed, with the gradients in closed form.

Two real patterns W_d, W_d+1 are one complex pattern U = W_d + i W_d+1. With P = ceil(D / 2) complex patterns (the last one's
imaginary part is zero for an odd D), ``(*)`` the circular convolution and beta = B_d + i B_d+1, LiSA reads::

    s_p = sum_c query_c (key_c (*) U^a_cp + beta^a_cp)              complex
    y_v = sum_p Re(conj(s_p) (value_v (*) U^b_p + beta_vp))

so that complex transforms over all axes at once, the fastest there are, do all the work. A constant added to a convolution is
an addition at frequency zero; the 1/N of the inverse transform is folded into the kernels' spectra.

The loops below hold a chunk of heads and one complex pattern at a time: beside tensors of the tokens' size, memory is constant.
The backward pass keeps query, key and value alone and recomputes the convolutions; gradients of key, value and the kernels'
spectra are summed in the frequency domain.

Names: ``M`` is B·h, ``_f`` marks spectra, ``_2`` real tensors repeated for the real and the imaginary part ``[..., 2]``.
"""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from .precision import no_autocast

# Complex numbers in a temporary. On CPU: 2 MiB, what the caches hold; on a GPU enough to fill it.
CHUNK = {"cpu": 1 << 18, "cuda": 1 << 24}


class FFTKernels(NamedTuple):
    """Spectra of the kernels on one grid, scaled by 1/N: ``a_f [P, c, *grid]``, ``b_f [P, 1, *grid]``, biases ``[P, c]``."""

    a_f: Tensor
    b_f: Tensor
    bias: Tensor
    bias_a: Tensor

    @classmethod
    def prepare(cls, kernel_a: Tensor, kernel_b: Tensor, bias: Tensor, bias_a: Tensor | None) -> "FFTKernels":
        with no_autocast(kernel_a.device):
            if bias_a is None:
                bias_a = torch.zeros_like(bias)
            a, b, bias, bias_a = (
                _complex_patterns(x if x.dtype == torch.float64 else x.float())
                for x in (kernel_a.transpose(0, 1), kernel_b[:, None], bias.T, bias_a.T)
            )
            axes = tuple(range(2, a.ndim))
            return cls(*(torch.fft.fftn(x, dim=axes, norm="forward") for x in (a, b)), bias, bias_a)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        dtype = self.a_f.real.dtype
        y = _lisa_fft(*(x.to(dtype).flatten(0, 1) for x in (query, key, value)), *self)
        return y.view(query.shape).to(query.dtype)


def _complex_patterns(x: Tensor) -> Tensor:
    """Real ``[D, ...]`` -> complex ``[ceil(D / 2), ...]``: patterns 0, 2, 4 … real, 1, 3, 5 … imaginary."""
    if x.shape[0] % 2:
        x = torch.cat([x, torch.zeros_like(x[:1])])
    return torch.complex(x[::2], x[1::2])


def _repeat_2(x: Tensor) -> Tensor:
    return torch.stack((x, x), dim=-1)


def _conj(x: Tensor) -> Tensor:
    return x.conj().resolve_conj()


class _Circular:
    """Circular convolutions of a chunk ``x: [m, c, *grid]`` with complex patterns, and their transposes."""

    def __init__(self, x: Tensor) -> None:
        self.axes = tuple(range(2, x.ndim))
        self.x_f = torch.fft.fftn(x, dim=self.axes)

    def __call__(self, kernel_f: Tensor, bias: Tensor) -> Tensor:
        """``x (*) U + beta`` of one pattern, from its spectrum and bias ``[c]``."""
        y_f = self.x_f * kernel_f
        y_f.flatten(2)[..., 0] += bias
        return torch.fft.ifftn(y_f, dim=self.axes, norm="forward")


def _chunks(x: Tensor) -> list[slice]:
    size = max(1, CHUNK["cuda" if x.is_cuda else "cpu"] // prod(x.shape[1:]))
    return [slice(start, start + size) for start in range(0, x.shape[0], size)]


@torch.library.custom_op("mmlisa::lisa_fft", mutates_args=())
def _lisa_fft(
    query: Tensor, key: Tensor, value: Tensor, a_f: Tensor, b_f: Tensor, bias: Tensor, bias_a: Tensor
) -> Tensor:
    """``[M, c, *grid]`` each -> ``[M, c, *grid]``."""
    y = torch.empty_like(value, memory_format=torch.contiguous_format)
    for rows in _chunks(query):
        query_2 = _repeat_2(query[rows])
        convolve_key, convolve_value = _Circular(key[rows]), _Circular(value[rows])
        total = torch.zeros_like(convolve_value.x_f)
        for p in range(len(a_f)):
            ga = torch.view_as_real(convolve_key(a_f[p], bias_a[p]))
            s = torch.view_as_complex(ga.mul_(query_2).sum(1, keepdim=True))
            total += convolve_value(b_f[p], bias[p]).mul_(_conj(s))
        y[rows] = total.real
    return y


@_lisa_fft.register_fake
def _(query, key, value, a_f, b_f, bias, bias_a):
    return torch.empty_like(value, memory_format=torch.contiguous_format)


@torch.library.custom_op("mmlisa::lisa_fft_backward", mutates_args=())
def _lisa_fft_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    a_f: Tensor,
    b_f: Tensor,
    bias: Tensor,
    bias_a: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of all seven inputs. A complex one is dL/dRe + i dL/dIm, as everywhere in torch."""
    d_query, d_key, d_value = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value))
    d_kernels = d_a_f, d_b_f, d_bias, d_bias_a = [torch.zeros_like(x) for x in (a_f, b_f, bias, bias_a)]
    a_f_conj, b_f_conj = _conj(a_f), _conj(b_f)
    for rows in _chunks(query):
        query_2, grad_2 = _repeat_2(query[rows]), _repeat_2(grad[rows])
        convolve_key, convolve_value = _Circular(key[rows]), _Circular(value[rows])
        axes, key_f_conj, value_f_conj = convolve_key.axes, _conj(convolve_key.x_f), _conj(convolve_value.x_f)
        d_query_total, d_key_f, d_value_f = (torch.zeros_like(key_f_conj) for _ in range(3))
        for p in range(len(a_f)):
            ga = convolve_key(a_f[p], bias_a[p])
            s = (torch.view_as_real(ga) * query_2).sum(1, keepdim=True)
            gb = convolve_value(b_f[p], bias[p])
            d_s = torch.view_as_real(gb).mul_(grad_2).sum(1, keepdim=True)
            d_query_total += ga.mul_(_conj(torch.view_as_complex(d_s)))

            d_gb_f = torch.fft.fftn(torch.view_as_complex(s * grad_2), dim=axes)
            d_bias[p] += d_gb_f.flatten(2)[..., 0].sum(0)
            d_value_f += d_gb_f * b_f_conj[p]
            d_b_f[p] += d_gb_f.mul_(value_f_conj).sum((0, 1))

            d_ga_f = torch.fft.fftn(torch.view_as_complex(d_s * query_2), dim=axes)
            d_bias_a[p] += d_ga_f.flatten(2)[..., 0].sum(0)
            d_key_f += d_ga_f * a_f_conj[p]
            d_a_f[p] += d_ga_f.mul_(key_f_conj).sum(0)
        d_query[rows] = d_query_total.real
        d_key[rows] = torch.fft.ifftn(d_key_f, dim=axes, norm="forward").real
        d_value[rows] = torch.fft.ifftn(d_value_f, dim=axes, norm="forward").real
    return d_query, d_key, d_value, *d_kernels


@_lisa_fft_backward.register_fake
def _(grad, *inputs):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs)


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    return _lisa_fft_backward(grad, *ctx.saved_tensors)


_lisa_fft.register_autograd(_backward, setup_context=_setup_context)
