"""Linear-angular attention against its quadratic evaluation, the exact angular kernel, and that kernel's series."""

from functools import partial
from math import factorial, pi

import pytest
import torch

from mmlisa import ops


def tokens(n: int = 12, d: int = 5, count: int = 3, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, n, d, dtype=dtype, generator=generator, requires_grad=True) for _ in range(count)]


@pytest.mark.parametrize("n", [1, 2, 12, 33])
def test_equals_its_quadratic_evaluation(n):
    q, k, v = tokens(n)
    unit_q, unit_k = (t / t.norm(dim=-1, keepdim=True) for t in (q, k))
    expected = v / 2 + (unit_q @ unit_k.mT) @ v / pi
    for backend in ("auto", "reference"):
        y = ops.linear_angular(q, k, v, backend=backend)
        torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-12)
        grads = torch.autograd.grad(y.sin().sum(), (q, k, v), retain_graph=True)
        torch.testing.assert_close(grads, torch.autograd.grad(expected.sin().sum(), (q, k, v), retain_graph=True))


def test_exact_kernel_is_the_series_of_eq_8():
    q, k = tokens(d=8, count=2)
    cosine = ops.unit(q) @ ops.unit(k).mT
    assert cosine.abs().max() < 0.95  # the series converges slowly at 1
    series = 0.5 + sum(
        factorial(2 * i) / (2 ** (2 * i) * factorial(i) ** 2 * (2 * i + 1)) * cosine ** (2 * i + 1) / pi
        for i in range(80)
    )
    torch.testing.assert_close(ops.angular_similarity(q, k), series, rtol=0, atol=1e-6)


def test_linear_terms_are_what_is_kept_of_the_exact_kernel():
    """The operator is the exact kernel's first two terms, with v_i for the sum of all v_j (Eq. 9, not 8)."""
    q, k, v = tokens()
    kept = ops.linear_angular(q, k, v) - v / 2 + v.sum(dim=-2, keepdim=True) / 2
    cosine = ops.unit(q) @ ops.unit(k).mT
    residual = (cosine.asin() - cosine) / pi
    torch.testing.assert_close(kept + residual @ v, ops.angular_similarity(q, k) @ v)


def test_aligned_and_opposite_vectors():
    q, _ = tokens(count=2)
    torch.testing.assert_close(ops.angular_similarity(q, q).diagonal(dim1=-2, dim2=-1), torch.ones(2, 3, 12).double())
    opposite = ops.angular_similarity(q, -q).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(opposite, torch.zeros_like(opposite), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("threshold", "share"), [(0.0, 1.0), (1.0, 0.0), (1.5, 0.0)])
def test_mask_at_the_ends(threshold, share):
    q, k, v = tokens()
    y, mask = ops.masked_softmax(q, k, v, threshold)
    assert mask.double().mean() == share
    expected = share * torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(y, expected)


def test_mask_keeps_what_is_above_the_threshold():
    q, k, v = tokens()
    probability = (q @ k.mT / 5**0.5).softmax(-1)
    y, mask = ops.masked_softmax(q, k, v, 0.1)
    assert 0 < mask.double().mean() < 1
    torch.testing.assert_close(y, torch.where(probability > 0.1, probability, 0) @ v)


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-6])
def test_zero_and_constant_vectors_are_finite(n, fill):
    q, k, v = (torch.full((1, 2, n, 4), fill, requires_grad=True) for _ in range(3))
    y = ops.unit(ops.linear_angular(q, k, v))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_unknown_backend():
    with pytest.raises(ValueError, match="no-such-backend"):
        ops.linear_angular(*tokens(), backend="no-such-backend")


@pytest.mark.parametrize(
    ("function", "feature", "scale"),
    [
        (ops.cosine_attention, lambda t: t / t.norm(dim=-1, keepdim=True), lambda w: 1),
        (ops.mean_centered_attention, lambda t: t - t.mean(-2, keepdim=True), lambda w: w.shape[-1] * 5**0.5),
        (ops.relu_softmax_attention, torch.relu, lambda w: w.shape[-1]),
        (partial(ops.relu_softmax_attention, average=False), torch.relu, lambda w: 1),
        (ops.relu_exp_attention, torch.relu, lambda w: w.sum(-1, keepdim=True) + 1e-6),
    ],
)
def test_compared_kernels_equal_their_quadratic_evaluation(function, feature, scale):
    q, k, v = tokens()
    weight = feature(q) @ feature(k).mT
    torch.testing.assert_close(function(q, k, v), weight / scale(weight) @ v)


def test_mean_centering_axis():
    q, k, v = tokens()
    weight = (q - q.mean(-1, keepdim=True)) @ (k - k.mean(-1, keepdim=True)).mT / (12 * 5**0.5)
    torch.testing.assert_close(ops.mean_centered_attention(q, k, v, "channels"), weight @ v)
    with pytest.raises(ValueError, match="no-such-axis"):
        ops.mean_centered_attention(q, k, v, "no-such-axis")
