"""LiSA: every backend is the reference, in value and in every gradient."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

from helpers.dispatch import Calls
from helpers.formulas import value_and_gradients
from mmlisa.ops import LiSAKernels, lisa
from mmlisa.ops.circular import circulant as circulant_module
from mmlisa.ops.circular import fft as fft_module
from mmlisa.ops.circular.dispatch import BACKENDS

FAST = [backend for backend in BACKENDS if backend != "reference"]
# B, h, c, D, grid: even, odd, prime, tall, 1-D, 3-D; one head, one pattern, odd numbers of channels and patterns
CASES = {
    "even": (2, 2, 4, 4, (6, 8)),
    "odd": (1, 3, 5, 3, (9, 7)),
    "prime-tall": (2, 1, 4, 2, (13, 3)),
    "one-of-each": (1, 1, 1, 1, (4, 5)),
    "line": (2, 2, 3, 2, (17,)),
    "video": (1, 2, 4, 3, (2, 5, 4)),
    "tiny": (1, 2, 2, 2, (1, 2)),
    "beyond-circulant": (1, 2, 4, 5, (16, 9)),
}


def make_inputs(case: str, dtype: torch.dtype = torch.float32, encoding_bias: bool = True) -> list[torch.Tensor]:
    batch, heads, c, num_patterns, grid = CASES[case]
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    tokens = [randn(batch, heads, c, *grid) for _ in range(3)]
    biases = [randn(c, num_patterns) for _ in range(1 + encoding_bias)]
    return [*tokens, randn(c, num_patterns, *grid), randn(num_patterns, *grid), *biases]


def results(inputs: list[torch.Tensor], backend: str) -> list[torch.Tensor]:
    return value_and_gradients(lisa(*inputs, backend=backend), inputs)


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> None:
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == e.shape
        assert (a - e).norm() <= tolerance * e.norm(), f"tensor {i} of value and gradients"


@pytest.mark.parametrize("encoding_bias", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", FAST)
def test_value_and_gradients_equal_the_reference(backend, case, encoding_bias):
    inputs = make_inputs(case, encoding_bias=encoding_bias)
    assert_same(results(inputs, backend), results(inputs, "reference"), 1e-5)


@pytest.mark.parametrize("backend", ["fft", "circulant"])
def test_chunks_of_heads_change_nothing(backend, monkeypatch):
    expected = results(make_inputs("odd"), backend)
    for module in (fft_module, circulant_module):
        monkeypatch.setitem(module.CHUNK, "cpu", 1)
    assert_same(results(make_inputs("odd"), backend), expected, 1e-6)


@pytest.mark.parametrize("backend", ["fft", "circulant"])
def test_prepared_kernels_serve_many_calls(backend):
    q, k, v, *kernels = (x.detach() for x in make_inputs("even"))
    prepared = LiSAKernels.prepare(*kernels, backend=backend)
    for tokens in [(q, k, v), (k, v, q)]:
        assert torch.equal(prepared(*tokens), lisa(*tokens, *kernels, backend=backend))


@pytest.mark.parametrize("backend", ["fft", "circulant"])
def test_backward_keeps_nothing_of_size_ncd(backend):
    """Saved for the backward pass: query, key, value, the encoded patterns s and what depends on the kernels alone."""
    inputs = [x.detach() for x in make_inputs("beyond-circulant")]
    query, num_patterns = inputs[0].requires_grad_(), inputs[4].shape[0]
    saved = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: saved.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
    ):
        lisa(*inputs, backend=backend)
    of_tokens = [x for x in saved.values() if x.shape[0] == query.shape[0] * query.shape[1]]
    assert {x.shape[1] for x in of_tokens} == {query.shape[2], num_patterns}
    assert len(of_tokens) == 4


@pytest.mark.parametrize("order", [(3, 4, 0, 1, 2), (0, 1, 2, 4, 3), (4, 0, 3, 1, 2)])
@pytest.mark.parametrize("backend", FAST)
def test_non_contiguous_tokens(backend, order):
    """Also maps whose axes lie in memory the other way round."""
    inputs = make_inputs("even", encoding_bias=True)
    expected = lisa(*inputs, backend="reference")
    back = [order.index(axis) for axis in range(5)]
    permuted = [x.permute(order).contiguous().permute(back) for x in inputs[:3]]
    y = lisa(*permuted, *inputs[3:], backend=backend)
    assert_same(value_and_gradients(y, inputs), value_and_gradients(expected, inputs), 1e-4)


@pytest.mark.parametrize("backend", ["fft", "circulant"])
def test_compiles_without_graph_breaks(backend):
    inputs = make_inputs("even")
    compiled = torch.compile(lambda *args: lisa(*args, backend=backend), backend="aot_eager", fullgraph=True)
    assert_same(value_and_gradients(compiled(*inputs), inputs), results(inputs, "reference"), 1e-5)


@pytest.mark.parametrize("own", [None, (5, 7), (4, 3)])
@pytest.mark.parametrize("grid", [(6, 8), (9, 7), (3, 16), (12, 5), (4, 4)])
@pytest.mark.parametrize("backend", ["dft", "rows"])
def test_exported_forms_resample_kernels_as_resize_kernel_does(grid, own, backend):
    kernels = [x.detach() for x in make_inputs("even")][3:]
    if own:
        kernels[:2] = [torch.randn(*x.shape[:-2], *own) for x in kernels[:2]]
    tokens = [torch.randn(2, 2, 4, *grid) for _ in range(3)]
    expected = LiSAKernels.prepare(*kernels, grid=grid, backend="reference")(*tokens)
    assert_same([LiSAKernels.prepare(*kernels, grid=grid, backend=backend)(*tokens)], [expected], 1e-5)


@pytest.mark.parametrize("case", ["even", "odd"])
@pytest.mark.parametrize("backend", ["fft", "circulant"])
def test_strides_are_those_that_compilers_are_told(backend, case):
    inputs = make_inputs(case)
    with Calls() as seen:
        lisa(*inputs, backend=backend).square().sum().backward()
    ours = [call for call in seen.calls if call[0].namespace == "mmlisa"]
    assert len(ours) == 4
    for function, args, result in ours:
        with FakeTensorMode() as mode:
            promised = function(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        for real, fake in zip(tree_leaves(result), tree_leaves(promised), strict=True):
            assert (real.shape, real.stride()) == (fake.shape, fake.stride()), function
