"""LiSA on small grids: products with circulant matrices, where a matrix product of size N beats any transform.

Encoding is one product per channel. Mixing is an attention: ``T_ij = sum_d s_d(i) W^b_d[i - j]`` is one N x N matrix per head,
shared by its channels, so ``y = value T^T + B s``. On small grids these O(N²) products are faster, though not leaner:
chunks of heads bound their memory, and the backward passes recompute them.
"""

from functools import partial

import torch
from torch import Tensor

from ..context import at_least_fp32, is_exporting, no_autocast
from ..relative import circulant
from .fft import Side, chunks, register_gradients

# Numbers in a temporary; on CPU 8 MiB.
CHUNK = {"cpu": 1 << 21, "cuda": 1 << 26}


def prepare_encode(kernel: Tensor, bias: Tensor | None) -> Side:
    if bias is None:
        bias = kernel.new_zeros(kernel.shape[:2])
    a = circulant(at_least_fp32(kernel), kernel.shape[2:]).permute(0, 3, 1, 2).flatten(2)  # [c, N(j), D N(i)]
    return partial(_encode_maps, a=a, bias=at_least_fp32(bias))


def prepare_mix(kernel: Tensor, bias: Tensor) -> Side:
    b = circulant(at_least_fp32(kernel), kernel.shape[1:]).transpose(0, 1).contiguous()  # [N(i), D, N(j)]
    return partial(_mix_maps, b=b, bias=at_least_fp32(bias))


def _encode_maps(query: Tensor, key: Tensor, a: Tensor, bias: Tensor) -> Tensor:
    return _encode(query.flatten(2), key.flatten(2), a, bias).unflatten(2, query.shape[2:])


def _mix_maps(s: Tensor, value: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    mix = _mix_chunk if is_exporting() else _mix  # a graph cannot hold the library's own operators
    return mix(s.flatten(2), value.flatten(2), b, bias).view(value.shape)


def _encode_key(key: Tensor, a: Tensor) -> Tensor:
    """``[m, c, N]`` -> ``[c, m, D, N]``."""
    return torch.bmm(key.transpose(0, 1), a).unflatten(2, (-1, key.shape[2]))


@torch.library.custom_op("mmlisa::lisa_encode_circulant", mutates_args=())
def _encode(query: Tensor, key: Tensor, a: Tensor, bias: Tensor) -> Tensor:
    s = query.new_empty(query.shape[0], bias.shape[1], query.shape[2])
    with no_autocast(query.device):
        for rows in chunks(query, a[:, 0].numel(), CHUNK):
            q = query[rows]
            s[rows] = _encode_key(key[rows], a).mul_(q.transpose(0, 1)[:, :, None]).sum(0)
            s[rows] += bias.T @ q
    return s


@torch.library.custom_op("mmlisa::lisa_encode_circulant_backward", mutates_args=())
def _encode_backward(
    grad: Tensor, query: Tensor, key: Tensor, a: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, a and bias."""
    d_query, d_key, d_a, d_bias = (
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        a.new_zeros(a.shape),
        bias.new_zeros(bias.shape),
    )
    with no_autocast(query.device):
        for rows in chunks(query, a[:, 0].numel(), CHUNK):
            q, k, d_s = query[rows], key[rows], grad[rows]
            d_query[rows] = _encode_key(k, a).mul_(d_s).sum(2).transpose(0, 1)
            d_query[rows] += bias @ d_s
            d_g = (q.transpose(0, 1)[:, :, None] * d_s).flatten(2)  # [c, m, D N]
            d_key[rows] = torch.bmm(d_g, a.transpose(1, 2)).transpose(0, 1)
            d_a += torch.bmm(k.permute(1, 2, 0), d_g)
            d_bias += torch.einsum("mci,mdi->cd", q, d_s)
    return d_query, d_key, d_a, d_bias


register_gradients(
    _encode,
    _encode_backward,
    lambda query, key, a, bias: query.new_empty(query.shape[0], bias.shape[1], query.shape[2]),
)


def _attention(s: Tensor, b: Tensor) -> Tensor:
    """``[m, D, N]`` -> T as ``[N(i), m, N(j)]``."""
    return torch.bmm(s.permute(2, 0, 1), b)


def _mix_chunk(s: Tensor, value: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """``[m, D, N]``, ``[m, c, N]`` -> ``[m, c, N]``."""
    return torch.bmm(value, _attention(s, b).permute(1, 2, 0)) + bias @ s


@torch.library.custom_op("mmlisa::lisa_mix_circulant", mutates_args=())
def _mix(s: Tensor, value: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    y = value.new_empty(value.shape)
    with no_autocast(value.device):
        for rows in chunks(value, len(b) ** 2, CHUNK):
            y[rows] = _mix_chunk(s[rows], value[rows], b, bias)
    return y


@torch.library.custom_op("mmlisa::lisa_mix_circulant_backward", mutates_args=())
def _mix_backward(
    grad: Tensor, s: Tensor, value: Tensor, b: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of s, value, b and bias."""
    d_s, d_value, d_b, d_bias = (
        s.new_empty(s.shape),
        value.new_empty(value.shape),
        b.new_zeros(b.shape),
        bias.new_zeros(bias.shape),
    )
    with no_autocast(value.device):
        for rows in chunks(value, len(b) ** 2, CHUNK):
            s_rows, v, dy = s[rows], value[rows], grad[rows]
            d_value[rows] = torch.bmm(dy, _attention(s_rows, b).transpose(0, 1))
            d_attention = torch.bmm(dy.transpose(1, 2), v).transpose(0, 1)  # [N(i), m, N(j)]
            d_s[rows] = torch.bmm(d_attention, b.transpose(1, 2)).permute(1, 2, 0)
            d_s[rows] += bias.T @ dy
            d_b += torch.bmm(s_rows.permute(2, 1, 0), d_attention)
            d_bias += torch.einsum("mci,mdi->cd", dy, s_rows)
    return d_s, d_value, d_b, d_bias


register_gradients(_mix, _mix_backward, lambda s, value, b, bias: value.new_empty(value.shape))
