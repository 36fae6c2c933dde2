"""LiSA against the exact Eq. 11."""

import pytest
import torch
import torch.nn.functional as F

from mmlisa import ops

B, H, C, D = 2, 3, 4, 5


def heads(n):
    query, key, value = torch.randn(3, B, H, n, C, dtype=torch.double).unbind()
    return [t.requires_grad_() for t in (F.normalize(query, dim=-1), F.normalize(key, dim=-1), value)]


def randn(*shape):
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


@pytest.mark.parametrize("encoding_bias", [False, True])
@pytest.mark.parametrize("grid", [(7,), (3, 4), (5, 3), (2, 3, 4)])
def test_lisa_is_eq_11_with_circulant_positions(grid, encoding_bias):
    torch.manual_seed(0)
    n = torch.Size(grid).numel()
    query, key, value = heads(n)
    kernel_a, kernel_b, bias = randn(C, D, *grid), randn(D, *grid), randn(C, D)
    bias_a = randn(C, D) if encoding_bias else None
    leaves = [query, key, value, kernel_a, kernel_b, bias] + ([bias_a] if encoding_bias else [])
    maps = (t.transpose(2, 3).unflatten(3, grid) for t in (query, key, value))
    fast = ops.lisa(*maps, kernel_a, kernel_b, bias, bias_a).flatten(3).transpose(2, 3)
    relative_a, relative_b = ops.circulant(kernel_a, grid), ops.circulant(kernel_b, grid)
    exact = ops.structure_aware(query, key, value, relative_a, relative_b, bias, bias_a)
    weights = torch.randn_like(exact)
    close = dict(rtol=0, atol=1e-10)
    torch.testing.assert_close(fast, exact, **close)
    torch.testing.assert_close(
        torch.autograd.grad((fast * weights).sum(), leaves, retain_graph=True),
        torch.autograd.grad((exact * weights).sum(), leaves),
        **close,
    )
