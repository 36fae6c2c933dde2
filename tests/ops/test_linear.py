"""Linear-angular attention against the exact angular kernel and that kernel's series."""

from math import factorial, pi

import pytest
import torch

from mmlisa import ops


def angular_similarity(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Eq. 5: ``1 - θ / π``."""
    cosine = ops.normalize_length(query) @ ops.normalize_length(key).mT
    return 1 - torch.arccos(cosine.clamp(-1, 1)) / pi


def tokens(n: int = 12, d: int = 5, count: int = 3, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, n, d, dtype=dtype, generator=generator, requires_grad=True) for _ in range(count)]


def test_exact_kernel_is_the_series_of_eq_8():
    q, k = tokens(d=8, count=2)
    cosine = ops.normalize_length(q) @ ops.normalize_length(k).mT
    assert cosine.abs().max() < 0.95  # the series converges slowly at 1
    series = 0.5 + sum(
        factorial(2 * i) / (2 ** (2 * i) * factorial(i) ** 2 * (2 * i + 1)) * cosine ** (2 * i + 1) / pi
        for i in range(80)
    )
    torch.testing.assert_close(angular_similarity(q, k), series, rtol=0, atol=1e-6)


def test_linear_terms_are_what_is_kept_of_the_exact_kernel():
    """The operator is the exact kernel's first two terms, with v_i for the sum of all v_j (Eq. 9, not 8)."""
    q, k, v = tokens()
    kept = ops.linear_angular(q, k, v) - v / 2 + v.sum(dim=-2, keepdim=True) / 2
    cosine = ops.normalize_length(q) @ ops.normalize_length(k).mT
    residual = (cosine.asin() - cosine) / pi
    torch.testing.assert_close(kept + residual @ v, angular_similarity(q, k) @ v)


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-6])
def test_zero_and_constant_vectors_are_finite(n, fill):
    q, k, v = (torch.full((1, 2, n, 4), fill, requires_grad=True) for _ in range(3))
    y = ops.normalize_length(ops.linear_angular(q, k, v))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_the_auxiliary_branch_keeps_no_map_for_the_backward_pass():
    inputs, saved = tokens(n=40, d=8, dtype=torch.float32), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.shape), t)[1], lambda t: t):
        ops.masked_softmax(*inputs, 0.02)
    assert saved == [t.shape for t in inputs]
