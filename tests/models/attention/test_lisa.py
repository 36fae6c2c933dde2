"""LiSA's module around the operator: kept kernels never outlive what they were made from, compilation, export."""

import copy
import pickle

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


def fresh(operator, x, grid=GRID):
    """The output of a copy that has kept nothing."""
    with torch.no_grad():
        return copy.deepcopy(operator)(x, grid)


def test_kernels_are_kept(operator, x):
    with torch.no_grad():
        operator(x, GRID)
        kept = operator._kernels(GRID)
        assert operator._kernels(GRID) is kept
        operator(x, (8, 9))
        assert operator._kernels(GRID) is kept
        for grid in [(72, 1), (1, 72)]:
            operator(x, grid)
        assert len(operator._prepared) == 2
        assert operator._kernels(GRID) is not kept
    assert operator._kernels(GRID) is not operator._kernels(GRID), "kept although a gradient is wanted"


def in_place(operator):
    operator.kernel_a.mul_(2)


def behind_autograd(operator):
    """As averaged weights are swapped in by MMEngine's EMAHook, which calls eval() afterwards."""
    operator.kernel_b.data.mul_(2)
    operator.eval()


def load(operator):
    operator.load_state_dict({k: 2 * v for k, v in operator.state_dict().items()})


def assign(operator):
    operator.load_state_dict({k: 2 * v for k, v in operator.state_dict().items()}, assign=True)


def round_trip(operator):
    operator.bfloat16().float()


def replace_bias(operator):
    operator.bias = torch.nn.Parameter(operator.bias + 1)


@pytest.mark.parametrize("change", [in_place, behind_autograd, load, assign, round_trip, replace_bias])
def test_kept_kernels_follow_every_change(operator, x, change):
    with torch.no_grad():
        before = operator(x, GRID)
        change(operator)
        after = operator(x, GRID)
    assert not torch.equal(before, after)
    assert torch.equal(after, fresh(operator, x))


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
    assert torch.equal(after, fresh(operator, x))
    parameter.requires_grad_()
    operator(x, GRID).square().sum().backward()
    assert parameter.grad.abs().sum() > 0


def test_kernels_kept_in_inference_mode_serve_a_gradient(operator, x):
    """A frozen operator inside a trained network: its tokens need a gradient, its kernels are kept."""
    operator.requires_grad_(False)
    with torch.inference_mode():
        operator(x, GRID)
    operator(x.requires_grad_(), GRID).sum().backward()
    assert x.grad.abs().sum() > 0


def test_training_releases_what_was_kept(operator, x):
    with torch.no_grad():
        operator(x, GRID)
    assert operator._prepared
    operator.train()(x, GRID).sum().backward()
    assert not operator._prepared


def test_copies_and_pickles_start_empty(operator, x):
    with torch.no_grad():
        y = operator(x, GRID)
        for other in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
            assert not other._prepared
            assert torch.equal(other(x, GRID), y)
    assert operator._prepared


def test_channel_major_projection_is_a_linear_layer():
    linear = build_attention(dict(type="LiSA"), 32, 2, GRID).qkv
    x = torch.randn(2, 72, 32)
    y = linear(x)
    torch.testing.assert_close(y, torch.nn.functional.linear(x, linear.weight, linear.bias))
    assert y.mT.is_contiguous()


@pytest.mark.parametrize("training", [False, True])
def test_compiles_without_graph_breaks(operator, x, training):
    operator.train(training)
    compiled = torch.compile(operator, backend="aot_eager", fullgraph=True)
    results = []
    for module in (operator, compiled):
        operator.zero_grad()
        y = module(x, GRID)
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad.clone() for p in operator.parameters())])
    torch.testing.assert_close(*results)


def test_exports_without_complex_numbers(operator, x):
    program = torch.export.export(operator, (x, GRID), strict=False)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [t for t in targets if "fft" in t or "complex" in t or "mmlisa" in t]
    torch.testing.assert_close(program.module()(x, GRID), fresh(operator, x), rtol=1e-4, atol=1e-5)


def test_interpolated_kernels_are_used_and_loaded():
    cfg = dict(type="LiSA", resize="interpolate")
    small, large = (build_attention(cfg, 32, 2, grid).eval() for grid in ((4, 5), (8, 9)))
    large.load_state_dict(small.state_dict())
    assert (ops.resize_kernel(small.kernel_b, (8, 9)) - large.kernel_b).abs().max() > 1e-2
    torch.testing.assert_close(large.kernel_b, ops.resize_kernel(small.kernel_b, (8, 9), "interpolate"))
    x = torch.randn(1, 72, 32)
    torch.testing.assert_close(small(x, (8, 9)), large(x, (8, 9)), rtol=1e-4, atol=1e-5)


def test_local_kernels_of_another_size_are_refused():
    small, large = (build_attention(dict(type="LiSA", kernel_size=size), 32, 2, (9, 9)) for size in (3, 5))
    with pytest.raises(RuntimeError, match="size mismatch for kernel_a"):
        small.load_state_dict(large.state_dict())
