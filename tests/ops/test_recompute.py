"""Linear layers of something cheap: the plain form's values and gradients of every order."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from mmlisa import ops
from mmlisa.ops import recompute


def cheap(x, weight, bias, kernel):
    """A norm, a depthwise convolution along the tokens, an activation."""
    y = F.layer_norm(x, x.shape[-1:], weight, bias)
    return F.gelu(F.conv1d(y.mT, kernel, padding=1, groups=x.shape[-1]).mT)


@pytest.fixture
def tensors():
    """The function's inputs, then the linear layer's weight and bias."""
    torch.manual_seed(0)
    shapes = [(2, 5, 4), (4,), (4,), (4, 1, 3), (3, 4), (3,)]
    return [torch.randn(shape, dtype=torch.double, requires_grad=True) for shape in shapes]


def plain(*tensors):
    *inputs, weight, bias = tensors
    return F.linear(cheap(*inputs), weight, bias)


def lean(*tensors):
    *inputs, weight, bias = tensors
    return ops.linear_of(cheap, inputs, weight, bias)


def test_gradients_of_gradients(tensors):
    assert gradcheck(lean, tensors)
    assert gradgradcheck(lean, tensors)


@pytest.mark.parametrize("wanted", [(0,), (1, 3), (4,), (5,), (0, 4), (2, 5)])
def test_any_part_may_be_frozen(tensors, wanted):
    for i, t in enumerate(tensors):
        t.requires_grad_(i in wanted)
    chosen = [tensors[i] for i in wanted]
    found, expected = (torch.autograd.grad(form(*tensors).square().sum(), chosen) for form in (lean, plain))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast_as_in_the_forward_pass(tensors, backward_inside):
    leaves = [t.detach().float().requires_grad_() for t in tensors]
    results = []
    for form in (plain, lean):
        with torch.autocast("cpu", torch.bfloat16):
            y = form(*leaves)
        with torch.autocast("cpu", torch.bfloat16, enabled=backward_inside):
            results.append([y.detach(), *torch.autograd.grad(y.float().square().sum(), leaves)])
    assert results[0][0].dtype == torch.bfloat16
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02)


def test_transforms_and_tracers_see_the_plain_form(tensors, monkeypatch):
    monkeypatch.setattr(recompute._LinearOf, "apply", None)
    with torch.no_grad():
        lean(*tensors)
    with pytest.raises(TypeError):
        lean(*tensors)
    x, *rest = tensors
    torch.func.jvp(lambda x: lean(x, *rest), (x,), (x,))
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(lean(forward_ad.make_dual(x, x), *rest)).tangent is not None
    rest = [t.detach() for t in rest]
    traced = torch.jit.trace(lambda x: lean(x, *rest), x, check_trace=False)
    torch.testing.assert_close(traced(2 * x), plain(2 * x, *rest))


def test_an_input_that_was_changed_is_refused(tensors):
    x, *rest = tensors
    x = x.clone()
    y = lean(x, *rest)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_the_masked_softmax_keeps_no_map_for_the_backward_pass():
    inputs, saved = [torch.randn(2, 3, 40, 8, requires_grad=True) for _ in range(3)], []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.shape), t)[1], lambda t: t):
        ops.masked_softmax(*inputs, 0.02)
    assert saved == [t.shape for t in inputs]


def test_inputs_that_depend_on_each_other_count_once_in_gradients_of_gradients():
    torch.manual_seed(0)
    x, weight = (torch.randn(3, 4, dtype=torch.double, requires_grad=True) for _ in range(2))
    results = []
    for linear in (ops.linear_of, lambda function, inputs, weight: F.linear(function(*inputs), weight)):
        y = linear(lambda a, b: a * b.sin(), (x, 2 * x), weight)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        results.append([first, *torch.autograd.grad(first.square().sum(), (x, weight))])
    torch.testing.assert_close(*results)
