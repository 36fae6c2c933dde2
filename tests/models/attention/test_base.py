"""What every attention operator promises: shapes on any grid, gradients everywhere, finite under autocast, clear errors."""

import copy
import pickle

import pytest
import torch
from torch import nn

from helpers.operators import CASES
from mmlisa.models import attention
from mmlisa.models.attention import build_attention
from mmlisa.registry import MODELS

# Operators (or single cases of them) that see tokens as a set: the grid changes nothing.
GRID_FREE = {
    "softmax",
    "hydra",
    "efficient",
    "relu-linear",
    "enhanced-linear",
    "linear-angular",
    "linear-angular-castling",
    "cosine",
    "mean-centered",
    "mean-centered-channels",
    "relu-softmax",
    "relu-exp",
}


@pytest.fixture(params=CASES)
def operator(request) -> nn.Module:
    torch.manual_seed(0)
    return build_attention(CASES[request.param], 32, 2, (6, 7))


def test_every_operator_is_here():
    registered = {name for name in attention.__all__ if MODELS.module_dict.get(name) is getattr(attention, name)}
    assert {case["type"] for case in CASES.values()} == registered


@pytest.mark.parametrize("grid", [(6, 7), (7, 6), (13, 9), (8, 8), (11, 7), (1, 13), (17, 1), (1, 1), (2, 64)])
def test_any_grid(operator, grid):
    if getattr(operator, "sr", None) is not None and min(grid) < 2:
        pytest.skip("a reduction needs as many rows and columns as it reduces")
    x = torch.randn(2, grid[0] * grid[1], 32)
    y = operator.eval()(x, grid)
    assert y.shape == x.shape
    assert y.isfinite().all()


@pytest.mark.parametrize("name", CASES)
def test_one_head(name):
    num_heads = 2 if name in ("cross-shaped-window", "inception-mixer") else 1  # which need two
    operator, x = build_attention(CASES[name], 16, num_heads, (6, 7)).eval(), torch.randn(2, 30, 16)
    assert operator(x, (5, 6)).shape == x.shape


def test_tokens_have_one_answer(operator):
    """However they lie in memory, beside whatever others, with and without gradients, in fp64, on any number of threads."""
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
        repeated = operator(x[1:2].expand(2, -1, -1), grid)
        torch.testing.assert_close(repeated, expected[1:2].expand(2, -1, -1), **rounding)
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            torch.testing.assert_close(operator(x, grid), expected, **rounding)
        finally:
            torch.set_num_threads(threads)
    with torch.inference_mode():
        torch.testing.assert_close(operator(x, grid).clone(), expected, **rounding)
    assert torch.equal(x, kept)
    torch.testing.assert_close(operator.double()(x.double(), grid).float(), expected, **rounding)


def test_copies_are_the_same_operator(operator, request):
    x = torch.randn(1, 90, 32)
    fresh = build_attention(CASES[request.node.callspec.params["operator"]], 32, 2, (6, 7)).eval()
    with torch.no_grad():
        expected = operator.eval()(x, (10, 9))
        fresh.load_state_dict(operator.state_dict())
        for other in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator)), fresh):
            assert torch.equal(other(x, (10, 9)), expected)


def test_what_is_no_number_comes_out_as_no_number(operator):
    assert operator.eval()(torch.full((1, 42, 32), torch.nan), (6, 7)).isnan().all()


def test_grid_order_matters(operator, request):
    """A grid read as (W, H) is another function: nothing may take int(sqrt(N)) or swap the axes."""
    if hasattr(operator, "bias") and hasattr(operator.bias, "attention_biases"):
        nn.init.normal_(operator.bias.attention_biases)  # LeViT's positions start at zero
    x = torch.randn(1, 60, 32)
    y, swapped = operator.eval()(x, (10, 6)), operator(x, (6, 10))
    names = {type(operator).__name__, request.node.callspec.params["operator"]}
    assert torch.allclose(y, swapped) == bool(names & GRID_FREE)


def test_every_parameter_gets_a_gradient(operator):
    x = torch.randn(2, 90, 32, requires_grad=True)
    (operator.train()(x, (10, 9)) * torch.randn(2, 90, 32)).sum().backward()
    assert not [name for name, p in operator.named_parameters() if p.grad is None]
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
def test_autocast_is_finite(operator, dtype, scale):
    x = (scale * torch.randn(2, 42, 32)).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        y = operator.train()(x, (6, 7))
    y.float().mean().backward()  # the gradients of a sum pass 65504 where they are right, too
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in operator.parameters() if p.grad is not None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_throughout(operator, dtype):
    """Weights and tokens in half precision, inside of autocast as well, where tokens in fp32 may meet them."""
    for p in operator.parameters():  # no branch starts at zero
        p.data.add_(0.02 * torch.randn_like(p))
    x = torch.randn(2, 90, 32)
    half = copy.deepcopy(operator.eval()).to(dtype)
    with torch.no_grad():
        expected, found = operator(x, (10, 9)), [half(x.to(dtype), (10, 9))]
        with torch.autocast("cpu", dtype=dtype):
            found += [half(x.to(dtype), (10, 9)), half(x, (10, 9))]
    assert found[0].dtype == dtype
    for y in found:
        assert (y.float() - expected).norm() < 2e-2 * expected.norm()


def test_heads_must_divide_the_channels():
    for name, cfg in CASES.items():
        if name == "levit":  # its heads have a width of their own
            continue
        with pytest.raises(ValueError, match="num_heads=5"):
            build_attention(cfg, 32, 5, (6, 7))


def test_wrong_number_of_tokens_is_refused(operator):
    with pytest.raises(ValueError, match="41"):
        operator(torch.randn(1, 41, 32), (6, 7))


def test_unknown_operator_and_option():
    with pytest.raises(ValueError, match="NoSuchOperator"):
        build_attention(dict(type="NoSuchOperator"), 32, 2, (6, 7))
    with pytest.raises(ValueError, match=r"did you mean LiSA\?"):
        build_attention(dict(type="Lisa"), 32, 2, (6, 7))
    with pytest.raises(TypeError, match="no_such_option"):
        build_attention(dict(type="LiSA", no_such_option=1), 32, 2, (6, 7))
