"""LiSA's module around the operator: each parameter counts, compilation, export."""

import pytest
import torch

from mmlisa import ops
from mmlisa.models.attention import build_attention

GRID = (9, 8)


@pytest.fixture
def operator():
    torch.manual_seed(0)
    return build_attention(dict(type="LiSA", num_patterns=3), 32, 2, (6, 7)).eval()


@pytest.fixture
def x():
    return torch.randn(1, 72, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["kernel_a", "kernel_b", "bias", "bias_a"])
def test_each_parameter_of_the_first_version_counts_alone(x, name):
    """Its change shows although the others are as they were, and it may be the only one that is trained."""
    torch.manual_seed(0)
    first = dict(type="LiSA", num_patterns=3, norm=False, encoding_bias=True)
    operator = build_attention(first, 32, 2, (6, 7)).eval().requires_grad_(False)
    before = operator(x, GRID)
    parameter = getattr(operator, name)
    parameter.add_(0.1)
    after = operator(x, GRID)
    assert not torch.equal(before, after)
    parameter.requires_grad_()
    y = operator(x, GRID)
    assert torch.equal(after, y)
    y.square().sum().backward()
    assert parameter.grad.abs().sum() > 0


def test_channel_major_projection_is_a_linear_layer():
    linear = build_attention(dict(type="LiSA"), 32, 2, GRID).qkv
    x = torch.randn(2, 72, 32)
    y = linear(x)
    torch.testing.assert_close(y, torch.nn.functional.linear(x, linear.weight, linear.bias))
    assert y.mT.is_contiguous()


def test_exports_without_complex_numbers(operator, x):
    program = torch.export.export(operator, (x, GRID), strict=False)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [t for t in targets if "fft" in t or "complex" in t or "mmlisa" in t]
    torch.testing.assert_close(program.module()(x, GRID), operator(x, GRID), rtol=1e-4, atol=1e-5)


def test_interpolated_kernels_are_used_and_loaded():
    cfg = dict(type="LiSA", resize="interpolate")
    small, large = (build_attention(cfg, 32, 2, grid).eval() for grid in ((4, 5), (8, 9)))
    large.load_state_dict(small.state_dict())
    assert (ops.resize_kernel(small.kernel_b, (8, 9)) - large.kernel_b).abs().max() > 1e-2
    torch.testing.assert_close(large.kernel_b, ops.resize_kernel(small.kernel_b, (8, 9), "interpolate"))
    x = torch.randn(1, 72, 32)
    torch.testing.assert_close(small(x, (8, 9)), large(x, (8, 9)), rtol=1e-4, atol=1e-5)
