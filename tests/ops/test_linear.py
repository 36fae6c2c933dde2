"""Linear-angular attention at zero and constant vectors, and what its auxiliary branch saves."""

import pytest
import torch

from mmlisa import ops


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-6])
def test_zero_and_constant_vectors_are_finite(n, fill):
    q, k, v = (torch.full((1, 2, n, 4), fill, requires_grad=True) for _ in range(3))
    y = ops.normalize_length(ops.linear_angular(q, k, v))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_the_auxiliary_branch_keeps_no_map_for_the_backward_pass():
    inputs, saved = [torch.randn(2, 3, 40, 8, requires_grad=True) for _ in range(3)], []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.shape), t)[1], lambda t: t):
        ops.masked_softmax(*inputs, 0.02)
    assert saved == [t.shape for t in inputs]
