"""LiSA by FFT: two real transforms in every complex one, streamed pattern by pattern, with the gradients in closed form.

A complex transform over all axes at once costs less than two real ones, so pairs of real maps travel as one complex map:

* Encoding: two patterns, W_d + i W_d+1, since ``key (*) (W_d + i W_d+1) = G_d + i G_d+1``, and ``s_d + i s_d+1`` is the sum
  over the channels of query times that.
* Mixing: two channels, since all channels of the value meet the same kernel: ``(v_1 + i v_2) (*) W_d = G_1d + i G_2d``.

A constant added to a convolution (the biases) is an addition at frequency zero, and the 1/N of the inverse transform is folded
into the kernels' spectra. The loops hold a chunk of heads and one pattern (pair) at a time, so that, apart from tensors of
the tokens' size, memory is constant. The backward passes save only their inputs and recompute the convolutions; the gradients of
key, value and spectra are summed in the frequency domain.

Names: M = B·h, m heads of a chunk, P = ceil(D / 2), ``_f`` a spectrum, ``_2`` the real and imaginary parts ``[..., 2]``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..context import at_least_fp32, no_autocast

# The function that a backend prepares for one grid. It encodes, (query, key), each ``[M, c, *grid]``, -> s ``[M, D, *grid]``, or
# mixes, (s, value) -> ``[M, c, *grid]``.
Side = Callable[[Tensor, Tensor], Tensor]

# Complex numbers in a temporary of a forward pass; a backward pass, with twice as many temporaries, takes half of it. On CPU:
# 2 MiB, what the caches hold; on a GPU enough to fill it.
CHUNK = {"cpu": 1 << 18, "cuda": 1 << 24}


def chunks(x: Tensor, per_head: int, limit: dict[str, int]) -> list[slice]:
    """Split the M heads of ``x: [M, ...]`` into slices of at least one head.

    A temporary with ``per_head`` numbers for each head then has at most ``limit[device]`` numbers.
    """
    size = max(1, limit["cuda" if x.is_cuda else "cpu"] // per_head)
    return [slice(start, start + size) for start in range(0, x.shape[0], size)]


def register_gradients(forward: Any, backward: Any, like: Callable[..., Tensor], others: int = 0) -> None:
    """Register ``backward``, which takes the gradient and the first four arguments, all that is saved.

    Args:
        forward, backward: operators made by ``torch.library.custom_op``.
        like: takes the arguments, and returns what tracers take for the result.
        others: arguments after the first four, without a gradient.
    """
    forward.register_fake(like)
    # Contiguous: with other strides than the gradients have, compiled code would read them in a wrong order.
    backward.register_fake(lambda grad, *inputs: tuple(x.new_empty(x.shape) for x in inputs))
    forward.register_autograd(
        lambda ctx, grad: (*backward(grad, *ctx.saved_tensors), *[None] * others),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:4]),
    )


def prepare_encode(kernel: Tensor, bias: Tensor | None) -> Side:
    """Return the function that encodes with complex spectra of pattern pairs ``[P, c, *grid]`` and their bias ``[P, c]``."""
    num_patterns = kernel.shape[1]
    if bias is None:
        bias = kernel.new_zeros(kernel.shape[:2])
    with no_autocast(kernel.device):
        kernel_f, bias = _fft(_pair(kernel.transpose(0, 1), 0), norm="forward"), _pair(bias.T, 0)
    return partial(_encode_maps, kernel_f=kernel_f, bias=bias, num_patterns=num_patterns)


def prepare_mix(kernel: Tensor, bias: Tensor) -> Side:
    """Return the function that mixes with complex spectra ``[D, *grid]`` and the bias of channel pairs ``[D, ceil(c / 2)]``."""
    with no_autocast(kernel.device):
        kernel_f = _fft(at_least_fp32(kernel), first_axis=1, norm="forward")
        return partial(_mix_maps, kernel_f=kernel_f, bias=_pair(bias.T, 1))


# A copied or pickled model refers to these functions by name, which is impossible with the operators below.
def _encode_maps(query: Tensor, key: Tensor, kernel_f: Tensor, bias: Tensor, num_patterns: int) -> Tensor:
    return _encode(query, key, kernel_f, bias, num_patterns)


def _mix_maps(s: Tensor, value: Tensor, kernel_f: Tensor, bias: Tensor) -> Tensor:
    return _mix(s, value, kernel_f, bias)


def _pair(x: Tensor, axis: int) -> Tensor:
    """Real -> complex, half as long: entries 0, 2, 4 … real, 1, 3, 5 … imaginary; an odd length is padded with zeros."""
    x = at_least_fp32(x)
    if x.shape[axis] % 2:
        x = torch.cat([x, torch.zeros_like(x.narrow(axis, 0, 1))], axis)
    real, imaginary = x.unflatten(axis, (-1, 2)).unbind(axis + 1)
    return torch.complex(real, imaginary)


def _unpair(x_2: Tensor, length: int) -> Tensor:
    """The inverse of ``_pair`` along axis 1, from ``[m, pairs, *grid, 2]``."""
    return x_2.movedim(-1, 2).flatten(1, 2)[:, :length]


def _repeat_2(x: Tensor) -> Tensor:
    """``[...]`` -> ``[..., 2]``, the factor of a complex number's parts."""
    return torch.view_as_real(torch.complex(x, x))


def _fft(x: Tensor, first_axis: int = 2, norm: str = "backward") -> Tensor:
    return torch.fft.fftn(x, dim=tuple(range(first_axis, x.ndim)), norm=norm)


def _inverse(x_f: Tensor) -> Tensor:
    """Without the factor 1/N, which the kernels' spectra carry."""
    return torch.fft.ifftn(x_f, dim=tuple(range(2, x_f.ndim)), norm="forward")


def _convolve_2(x_f: Tensor, kernel_f: Tensor, bias: Tensor) -> Tensor:
    """``[m, c, *grid]`` times the spectrum of a pattern, plus ``[c]`` -> ``[m, c, *grid, 2]``."""
    y_f = x_f * kernel_f
    y_f[(..., *(0,) * (y_f.ndim - 2))] += bias  # at frequency 0
    return torch.view_as_real(_inverse(y_f))


@torch.library.custom_op("mmlisa::lisa_encode_fft", mutates_args=())
def _encode(query: Tensor, key: Tensor, kernel_f: Tensor, bias: Tensor, num_patterns: int) -> Tensor:
    s = query.new_empty(query.shape[0], 2 * len(kernel_f), *query.shape[2:])
    for rows in chunks(query, query.shape[1:].numel(), CHUNK):
        query_2, key_f = _repeat_2(query[rows]), _fft(key[rows])
        for p in range(len(kernel_f)):
            s_2 = _convolve_2(key_f, kernel_f[p], bias[p]).mul_(query_2).sum(1)
            s[rows, 2 * p : 2 * p + 2] = s_2.movedim(-1, 1)
    return s if s.shape[1] == num_patterns else s[:, :num_patterns].contiguous()


@torch.library.custom_op("mmlisa::lisa_encode_fft_backward", mutates_args=())
def _encode_backward(
    grad: Tensor, query: Tensor, key: Tensor, kernel_f: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, kernel_f and bias; a complex one is dL/dRe + i dL/dIm, as everywhere in torch."""
    d_query, d_key, d_kernel_f, d_bias = (
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        kernel_f.new_zeros(kernel_f.shape),
        bias.new_zeros(bias.shape),
    )
    kernel_f_conj = kernel_f.conj_physical()
    for rows in chunks(query, 2 * query.shape[1:].numel(), CHUNK):
        query_2, key_f = _repeat_2(query[rows]), _fft(key[rows])
        key_f_conj, d_key_f = key_f.conj_physical(), torch.zeros_like(key_f)
        grad_c = _pair(grad[rows], 1)[:, :, None]  # [m, P, 1, *grid]
        d_query_2 = torch.zeros_like(query_2)
        for p in range(len(kernel_f)):
            d_s_2 = torch.view_as_real(grad_c[:, p])
            d_query_2.addcmul_(_convolve_2(key_f, kernel_f[p], bias[p]), d_s_2)
            d_g_f = _fft(torch.view_as_complex(query_2 * d_s_2))
            d_bias[p] += d_g_f.flatten(2)[..., 0].sum(0)
            d_key_f += d_g_f * kernel_f_conj[p]
            d_kernel_f[p] += d_g_f.mul_(key_f_conj).sum(0)
        d_query[rows] = d_query_2.sum(-1)
        d_key[rows] = _inverse(d_key_f).real
    return d_query, d_key, d_kernel_f, d_bias


register_gradients(
    _encode,
    _encode_backward,
    lambda query, key, kernel_f, bias, num_patterns: query.new_empty(query.shape[0], num_patterns, *query.shape[2:]),
    others=1,
)


@torch.library.custom_op("mmlisa::lisa_mix_fft", mutates_args=())
def _mix(s: Tensor, value: Tensor, kernel_f: Tensor, bias: Tensor) -> Tensor:
    y = value.new_empty(value.shape)
    for rows in chunks(value, value.shape[1:].numel(), CHUNK):
        value_f, s_rows = _fft(_pair(value[rows], 1)), s[rows, :, None]
        y_2 = torch.zeros_like(torch.view_as_real(value_f))
        for d in range(len(kernel_f)):
            y_2.addcmul_(_convolve_2(value_f, kernel_f[d], bias[d]), _repeat_2(s_rows[:, d]))
        y[rows] = _unpair(y_2, value.shape[1])
    return y


@torch.library.custom_op("mmlisa::lisa_mix_fft_backward", mutates_args=())
def _mix_backward(
    grad: Tensor, s: Tensor, value: Tensor, kernel_f: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, value, kernel_f and bias."""
    d_s, d_value, d_kernel_f, d_bias = (
        s.new_empty(s.shape),
        value.new_empty(value.shape),
        kernel_f.new_zeros(kernel_f.shape),
        bias.new_zeros(bias.shape),
    )
    kernel_f_conj = kernel_f.conj_physical()
    for rows in chunks(value, 2 * value.shape[1:].numel(), CHUNK):
        value_f, s_rows = _fft(_pair(value[rows], 1)), s[rows, :, None]
        value_f_conj, d_value_f = value_f.conj_physical(), torch.zeros_like(value_f)
        grad_2 = torch.view_as_real(_pair(grad[rows], 1))
        for d in range(len(kernel_f)):
            g_2 = _convolve_2(value_f, kernel_f[d], bias[d])
            d_s[rows, d] = g_2.mul_(grad_2).sum(1).sum(-1)
            d_g_f = _fft(torch.view_as_complex(grad_2 * _repeat_2(s_rows[:, d])))
            d_bias[d] += d_g_f.flatten(2)[..., 0].sum(0)
            d_value_f += d_g_f * kernel_f_conj[d]
            d_kernel_f[d] += d_g_f.mul_(value_f_conj).sum((0, 1))
        d_value[rows] = _unpair(torch.view_as_real(_inverse(d_value_f)), value.shape[1])
    return d_s, d_value, d_kernel_f, d_bias


register_gradients(_mix, _mix_backward, lambda s, value, kernel_f, bias: value.new_empty(value.shape))
