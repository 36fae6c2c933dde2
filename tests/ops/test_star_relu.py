"""StarReLU with its gradients in closed form."""

import torch
from torch.autograd import gradcheck, gradgradcheck

from mmlisa import ops


def test_gradients_of_every_order_are_those_of_the_formula():
    torch.manual_seed(0)
    x = torch.randn(2, 7, 3, dtype=torch.double, requires_grad=True)
    scale, bias = (torch.randn(1, dtype=torch.double, requires_grad=True) for _ in range(2))
    results = []
    for backend in ("auto", "reference"):
        y = ops.star_relu(x, scale, bias, backend=backend)
        results.append([y, *torch.autograd.grad(y.pow(3).sum(), (x, scale, bias))])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    assert gradcheck(ops.star_relu, (x, scale, bias))
    assert gradgradcheck(ops.star_relu, (x, scale, bias))
    torch.func.vmap(torch.func.grad(lambda x: ops.star_relu(x, scale, bias).sum()))(x)
