"""The interface of attention operators: shapes on any grid, gradients everywhere, finite under autocast, clear errors."""

import copy

import pytest
import torch
from torch import nn

from helpers.operators import CASES
from mmlisa.models.attention import OPERATORS, build_attention


@pytest.fixture(params=CASES)
def operator(request) -> nn.Module:
    torch.manual_seed(0)
    return build_attention(CASES[request.param], 32, 2, (6, 7))


def test_every_operator_is_here():
    assert sorted({case["type"] for case in CASES.values()}) == OPERATORS


def test_any_grid(operator):
    smallest = 1 if getattr(operator, "sr", None) is None else 2  # a reduction needs as many rows as it reduces
    for grid in [(13, 9), (smallest, 13), (17, smallest), (smallest, smallest), (2, 64)]:
        x = torch.randn(2, grid[0] * grid[1], 32)
        y = operator.eval()(x, grid)
        assert y.shape == x.shape
        assert y.isfinite().all()


def test_tokens_have_one_answer(operator):
    """The result does not depend on the memory layout, on the other images, on gradients or on the precision."""
    grid, rounding = (9, 8), dict(rtol=1e-4, atol=1e-5)
    x = torch.randn(3, 72, 32)
    kept = x.clone()
    expected = operator.eval()(x, grid).detach()
    strided = torch.randn(3, 72, 64)
    strided[..., ::2] = x
    with torch.no_grad():
        for tokens in (x, strided[..., ::2], x.transpose(1, 2).contiguous().transpose(1, 2)):
            torch.testing.assert_close(operator(tokens, grid), expected, **rounding)
        torch.testing.assert_close(operator(x[1:2], grid), expected[1:2], **rounding)
    with torch.inference_mode():
        torch.testing.assert_close(operator(x, grid).clone(), expected, **rounding)
    assert torch.equal(x, kept)
    torch.testing.assert_close(operator.double()(x.double(), grid).float(), expected, **rounding)


def test_grid_order_matters(operator, request):
    """A grid read as (W, H) is another function, unless tokens are a set: nothing may take int(sqrt(N)) or swap the axes."""
    if hasattr(operator, "bias") and hasattr(operator.bias, "attention_biases"):
        nn.init.normal_(operator.bias.attention_biases)  # LeViT's positions start at zero
    x, order = torch.randn(1, 60, 32), torch.randperm(60)
    y, swapped, shuffled = operator.eval()(x, (10, 6)), operator(x, (6, 10)), operator(x[:, order], (10, 6))
    is_set = torch.allclose(y[:, order], shuffled, atol=1e-6)
    # Castling-ViT's DConv runs along the flattened tokens.
    is_row = request.node.callspec.params["operator"] in ("linear-angular", "linear-angular-castling")
    assert torch.allclose(y, swapped, atol=1e-6) == (is_set or is_row)


@pytest.mark.parametrize("scale", [0.0, 300.0])
def test_autocast_is_finite(operator, scale):
    x = (scale * torch.randn(2, 42, 32)).requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        y = operator.train()(x, (6, 7))
    y.float().mean().backward()  # the gradients of a sum pass 65504 where they are right, too
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in operator.parameters())


def test_half_precision_throughout(operator):
    """Weights and tokens in half precision, inside of autocast as well, where tokens in fp32 may meet them."""
    for p in operator.parameters():  # no branch starts at zero
        p.data.add_(0.02 * torch.randn_like(p))
    x = torch.randn(2, 90, 32)
    half = copy.deepcopy(operator.eval()).bfloat16()
    with torch.no_grad():
        expected, found = operator(x, (10, 9)), [half(x.bfloat16(), (10, 9))]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found += [half(x.bfloat16(), (10, 9)), half(x, (10, 9))]
    assert found[0].dtype == torch.bfloat16
    for y in found:
        assert (y.float() - expected).norm() < 2e-2 * expected.norm()


@pytest.mark.parametrize("name", ["MILA", "TTT", "PolarityAware", "RALA", "MALA", "InLine", "Agent"])
def test_half_precision_on_the_map_of_a_detector(name):
    torch.manual_seed(0)
    operator, grid = build_attention(dict(type=f"{name}Attention"), 8, 2, (56, 56)), (100, 168)
    x = (10 * torch.randn(1, grid[0] * grid[1], 8)).requires_grad_()
    expected = operator(x, grid).detach()
    with torch.autocast("cpu", dtype=torch.float16):
        y = operator(x, grid)
    assert y.isfinite().all()
    assert (y.float() - expected).norm() < 0.03 * expected.norm()
    y.float().mean().backward()
    assert x.grad.isfinite().all()


def test_heads_must_divide_the_channels():
    with pytest.raises(ValueError, match="num_heads"):
        build_attention(CASES["softmax"], 32, 5, (6, 7))


def test_wrong_number_of_tokens_is_refused(operator):
    with pytest.raises(ValueError, match="41"):
        operator(torch.randn(1, 41, 32), (6, 7))
