"""Depthwise convolution: the gradient of large kernels, block by block, is the gradient."""

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

from mmlisa import ops

module = import_module("mmlisa.ops.depthwise")  # mmlisa.ops.depthwise is the function


def channels_last(*shape):
    x = torch.randn(*shape, dtype=torch.double).to(memory_format=torch.channels_last)
    return x.requires_grad_()


# One and several images, kernels larger than the map, not square, of one to three blocks.
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((2, 5, 9, 7), (7, 7)),
        ((3, 4, 1, 2), (5, 5)),
        ((1, 3, 6, 8), (3, 7)),
        ((2, 3, 4, 5), (9, 5)),
        ((2, 2, 6, 3), (5, 3)),
    ],
)
def test_weight_gradient_is_the_sum_over_shifted_maps(shape, size):
    torch.manual_seed(0)
    x, grad = channels_last(*shape).detach(), channels_last(*shape).detach()
    windows = (
        F.pad(x, (size[1] // 2, size[1] // 2, size[0] // 2, size[0] // 2)).unfold(2, size[0], 1).unfold(3, size[1], 1)
    )
    expected = torch.einsum("bchw,bchwij->cij", grad, windows)[:, None]
    torch.testing.assert_close(module.weight_gradient(grad, x, size), expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_every_order(monkeypatch):
    calls = []
    original = module.weight_gradient
    monkeypatch.setattr(module, "weight_gradient", lambda *args: (calls.append(1), original(*args))[1])
    torch.manual_seed(0)
    tensors = [
        channels_last(2, 2, 4, 3),
        torch.randn(2, 1, 5, 5, dtype=torch.double, requires_grad=True),
        torch.randn(2, dtype=torch.double, requires_grad=True),
    ]
    assert gradcheck(ops.depthwise, tensors)
    assert calls
    assert gradgradcheck(ops.depthwise, tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_as_the_convolution_in_any_layout_and_precision(dtype):
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 1, 7, 7, requires_grad=True), torch.randn(4, requires_grad=True)
    for layout in (torch.channels_last, torch.contiguous_format):
        x = torch.randn(2, 4, 10, 9).to(memory_format=layout).requires_grad_()
        results = []
        for form in (ops.depthwise, lambda x, w, b: F.conv2d(x, w, b, padding=3, groups=4)):
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                y = form(x, weight, bias)
            results.append([y, *torch.autograd.grad(y.float().square().sum(), (x, weight, bias))])
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-3)


def test_transforms_and_tracers_see_the_convolution(monkeypatch):
    monkeypatch.setattr(module._Depthwise, "apply", None)
    x, weight = channels_last(1, 2, 4, 4), torch.randn(2, 1, 5, 5, dtype=torch.double, requires_grad=True)
    with pytest.raises(TypeError):
        ops.depthwise(x, weight)
    expected = F.conv2d(x, weight, padding=2, groups=2)
    assert torch.equal(torch.jit.trace(ops.depthwise, (x, weight), check_trace=False)(x, weight), expected)
    grad = torch.func.grad(lambda w: ops.depthwise(x, w).sum())(weight)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.sum(), weight)[0])


@pytest.mark.parametrize("size", [(7, 1), (1, 7)])
def test_kernels_along_one_axis(size):
    torch.manual_seed(0)
    tensors = [channels_last(2, 3, 6, 5), torch.randn(3, 1, *size, dtype=torch.double, requires_grad=True)]
    assert gradcheck(ops.depthwise, [*tensors, torch.randn(3, dtype=torch.double, requires_grad=True)])
