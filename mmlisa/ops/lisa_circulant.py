"""LiSA on tiny grids: products with circulant matrices, where a matrix product of size N beats any transform.

The key side is one product per channel, the value side an attention: T_ij = sum_d s_d(i) W^b_d[i - j] is one N x N matrix per
head, shared by its channels, so y = value T^T + B s.
"""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from .precision import no_autocast

# Numbers in the encoded key of a chunk of heads, on CPU 4 MiB.
CHUNK = {"cpu": 1 << 20, "cuda": 1 << 26}


def circulant(kernel: Tensor, grid: torch.Size) -> Tensor:
    """``[..., *grid]`` -> ``[..., N, N]``: entry (i, j) is the kernel at the cyclic offset i - j."""
    n = prod(grid)
    position = torch.stack(torch.meshgrid(*(torch.arange(size) for size in grid), indexing="ij")).flatten(1)
    offset = (position[:, :, None] - position[:, None, :]) % torch.tensor(grid)[:, None, None]
    index = torch.zeros(n, n, dtype=torch.long)
    for axis, size in enumerate(grid):
        index = index * size + offset[axis]
    return kernel.flatten(-len(grid))[..., index.to(kernel.device)]


class CirculantKernels(NamedTuple):
    """Circulant matrices of the kernels: ``a [c, N(j), D N(i)]``, ``b [N(i), D, N(j)]``, biases ``[c, D]``."""

    a: Tensor
    b: Tensor
    bias: Tensor
    bias_a: Tensor

    @classmethod
    def prepare(cls, kernel_a: Tensor, kernel_b: Tensor, bias: Tensor, bias_a: Tensor | None) -> "CirculantKernels":
        grid = kernel_b.shape[1:]
        if bias_a is None:
            bias_a = torch.zeros_like(bias)
        kernel_a, kernel_b, bias, bias_a = (
            x if x.dtype == torch.float64 else x.float() for x in (kernel_a, kernel_b, bias, bias_a)
        )
        a = circulant(kernel_a, grid).permute(0, 3, 1, 2).flatten(2)
        b = circulant(kernel_b, grid).transpose(0, 1).contiguous()
        return cls(a, b, bias, bias_a)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        tokens = (x.to(self.bias.dtype).flatten(0, 1).flatten(2) for x in (query, key, value))
        return _lisa_circulant(*tokens, *self).view(query.shape).to(query.dtype)


def _chunks(x: Tensor, num_patterns: int) -> list[slice]:
    size = max(1, CHUNK["cuda" if x.is_cuda else "cpu"] // (x[0].numel() * num_patterns))
    return [slice(start, start + size) for start in range(0, x.shape[0], size)]


def _encode(query: Tensor, key: Tensor, a: Tensor, bias_a: Tensor) -> tuple[Tensor, Tensor]:
    """Encoded keys without bias ``[c, m, D, N]`` and encoded patterns ``[m, D, N]``."""
    m, c, n = query.shape
    ga = torch.bmm(key.transpose(0, 1), a).view(c, m, -1, n)
    s = (ga * query.transpose(0, 1)[:, :, None]).sum(0)
    return ga, s.add_(bias_a.T @ query)


@torch.library.custom_op("mmlisa::lisa_circulant", mutates_args=())
def _lisa_circulant(
    query: Tensor, key: Tensor, value: Tensor, a: Tensor, b: Tensor, bias: Tensor, bias_a: Tensor
) -> Tensor:
    """``[M, c, N]`` each, M = B·h -> ``[M, c, N]``."""
    y = torch.empty_like(value, memory_format=torch.contiguous_format)
    with no_autocast(query.device):
        for rows in _chunks(query, b.shape[1]):
            _, s = _encode(query[rows], key[rows], a, bias_a)
            attention = torch.bmm(s.permute(2, 0, 1), b)  # [N(i), m, N(j)]
            y[rows] = torch.baddbmm(bias @ s, value[rows], attention.permute(1, 2, 0))
    return y


@_lisa_circulant.register_fake
def _(query, key, value, a, b, bias, bias_a):
    return torch.empty_like(value, memory_format=torch.contiguous_format)


@torch.library.custom_op("mmlisa::lisa_circulant_backward", mutates_args=())
def _lisa_circulant_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, a: Tensor, b: Tensor, bias: Tensor, bias_a: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of all seven inputs; the encoded key and the attention are recomputed."""
    d_query, d_key, d_value = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value))
    d_kernels = d_a, d_b, d_bias, d_bias_a = [torch.zeros_like(x) for x in (a, b, bias, bias_a)]
    with no_autocast(query.device):
        for rows in _chunks(query, b.shape[1]):
            q, k, v, dy = query[rows], key[rows], value[rows], grad[rows]
            ga, s = _encode(q, k, a, bias_a)
            attention = torch.bmm(s.permute(2, 0, 1), b)  # [N(i), m, N(j)]
            d_value[rows] = torch.bmm(dy, attention.transpose(0, 1))
            d_attention = torch.bmm(dy.transpose(1, 2), v).transpose(0, 1)
            d_s = torch.bmm(d_attention, b.transpose(1, 2)).permute(1, 2, 0) + bias.T @ dy
            d_b += torch.bmm(s.permute(2, 1, 0), d_attention)
            d_bias += torch.einsum("mci,mdi->cd", dy, s)
            d_bias_a += torch.einsum("mci,mdi->cd", q, d_s)

            d_query[rows] = bias_a @ d_s + ga.mul_(d_s).sum(2).transpose(0, 1)
            d_ga = (q.transpose(0, 1)[:, :, None] * d_s).flatten(2)  # [c, m, D N]
            d_key[rows] = torch.bmm(d_ga, a.transpose(1, 2)).transpose(0, 1)
            d_a += torch.bmm(k.permute(1, 2, 0), d_ga)
    return d_query, d_key, d_value, *d_kernels


@_lisa_circulant_backward.register_fake
def _(grad, *inputs):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs)


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    return _lisa_circulant_backward(grad, *ctx.saved_tensors)


_lisa_circulant.register_autograd(_backward, setup_context=_setup_context)
