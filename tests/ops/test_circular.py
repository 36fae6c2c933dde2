"""LiSA's backends: what they save, their strides, kernels of other grids; test_references.py compares them with the formula."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves

from helpers.formulas import Calls, value_and_gradients
from mmlisa import ops
from mmlisa.ops import LiSAKernels, circular, lisa

CLOSED = ("fft", "circulant")  # with gradients in closed form
FAST = (*CLOSED, "dft", "rows")


def make_inputs(grid=(6, 8), c=4, patterns=4, dtype=torch.float32) -> list[torch.Tensor]:
    """Query, key, value, kernels and both biases, for two images and two heads."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 2, c, *grid)] * 3 + [(c, patterns, *grid), (patterns, *grid), (c, patterns), (c, patterns)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def results(inputs: list[torch.Tensor], backend: str) -> list[torch.Tensor]:
    return value_and_gradients(lisa(*inputs, backend=backend), inputs)


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == e.shape
        assert (a - e).norm() <= tolerance * e.norm(), f"tensor {i} of value and gradients"


@pytest.mark.parametrize("backend", CLOSED)
def test_chunks_of_heads_change_nothing(backend, monkeypatch):
    inputs = make_inputs((9, 7), c=5, patterns=3)
    expected = results(inputs, backend)
    monkeypatch.setitem(getattr(circular, backend).CHUNK, "cpu", 1)
    assert_same(results(inputs, backend), expected, 1e-6)


@pytest.mark.parametrize("backend", CLOSED)
def test_backward_keeps_nothing_of_size_ncd(backend):
    """Saved for the backward pass: query, key, value, the encoded patterns s and what depends on the kernels alone."""
    query, *inputs = (x.detach() for x in make_inputs((16, 9), c=3, patterns=5))
    saved = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: saved.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
    ):
        lisa(query.requires_grad_(), *inputs, backend=backend)
    assert sorted(x.shape[1] for x in saved.values() if len(x) == 2 * 2) == [3, 3, 3, 5]


@pytest.mark.parametrize("order", [(3, 4, 0, 1, 2), (0, 1, 2, 4, 3), (4, 0, 3, 1, 2)])
@pytest.mark.parametrize("backend", FAST)
def test_non_contiguous_tokens_and_prepared_kernels_twice(backend, order):
    """Also maps whose axes lie in memory the other way round."""
    inputs = make_inputs()
    expected = results(inputs, "reference")
    back = [order.index(axis) for axis in range(5)]
    kernels = LiSAKernels.prepare(*inputs[3:], backend=backend)
    for tokens in (inputs[:3], [x.permute(order).contiguous().permute(back) for x in inputs[:3]]):
        y = kernels(*tokens)
        gradients = torch.autograd.grad(y, inputs, torch.linspace(-1, 1, y.numel()).view(y.shape), retain_graph=True)
        assert_same([y, *gradients], expected)


@pytest.mark.parametrize("backend", CLOSED)
def test_compiles_without_graph_breaks(backend):
    inputs = make_inputs()
    compiled = torch.compile(lambda *args: lisa(*args, backend=backend), backend="aot_eager", fullgraph=True)
    assert_same(value_and_gradients(compiled(*inputs), inputs), results(inputs, "reference"))


@pytest.mark.parametrize("patterns", [4, 3])
@pytest.mark.parametrize("backend", CLOSED)
def test_strides_are_those_that_compilers_are_told(backend, patterns):
    inputs = make_inputs((9, 7), c=5, patterns=patterns)
    with Calls() as seen:
        lisa(*inputs, backend=backend).square().sum().backward()
    ours = [call for call in seen.calls if call[0].namespace == "mmlisa"]
    assert len(ours) == 4
    for function, args, result in ours:
        with FakeTensorMode() as mode:
            promised = function(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
        for real, fake in zip(tree_leaves(result), tree_leaves(promised), strict=True):
            assert (real.shape, real.stride()) == (fake.shape, fake.stride()), function


@pytest.mark.parametrize("own", [(6, 8), (5, 7), (4, 3)])
@pytest.mark.parametrize("grid", [(6, 8), (9, 7), (3, 16), (12, 5), (4, 4)])
@pytest.mark.parametrize("backend", ["dft", "rows"])
def test_exported_forms_resample_kernels_as_resize_kernel_does(grid, own, backend):
    tokens, kernels = make_inputs(grid)[:3], make_inputs(own)[3:]
    forms = (LiSAKernels.prepare(*kernels, grid=grid, backend=each)(*tokens) for each in (backend, "reference"))
    assert_same(*([y] for y in forms))


@pytest.mark.parametrize("old", [(6, 5), (5, 5), (4, 6), (7, 2)])
@pytest.mark.parametrize("factor", [(2, 3), (1, 2), (3, 1)])
def test_resized_kernels_give_tiled_output_for_tiled_input(old, factor):
    """On an integer multiple of the grid, a periodically tiled input gives the tiled output exactly."""
    *tokens, kernel_a, kernel_b, bias, _ = make_inputs(old, dtype=torch.float64)
    new = tuple(n * f for n, f in zip(old, factor, strict=True))
    small = lisa(*tokens, kernel_a, kernel_b, bias)
    tiled = [t.repeat(1, 1, 1, *factor) for t in tokens]
    large = lisa(*tiled, ops.resize_kernel(kernel_a, new), ops.resize_kernel(kernel_b, new), bias)
    torch.testing.assert_close(large, small.repeat(1, 1, 1, *factor), rtol=1e-10, atol=1e-10)


def test_wrong_shapes_are_named():
    tensors = make_inputs()
    for name, changed in (("kernel_b", {4: tensors[4][..., :4]}), ("one shape", {1: tensors[1][..., :4]})):
        with pytest.raises(ValueError, match=name):
            lisa(*(changed.get(i, x) for i, x in enumerate(tensors)))
    with pytest.raises(ValueError, match="no-such"):
        lisa(*tensors, backend="no-such")


def choose(grid, c=16, num_patterns=8):
    return circular.choose(torch.device("cpu"), grid, c, num_patterns)


def test_both_sides_of_the_thresholds(monkeypatch):
    monkeypatch.setitem(circular.THRESHOLDS, "cpu", (64, 32))
    assert choose((8, 8)) == ("circulant", "circulant")
    assert choose((5, 13)) == ("fft", "circulant")
    assert choose((13, 13)) == ("fft", "circulant")  # 169 (1 / 16 + 1 / 8) = 31.7
    assert choose((19, 9)) == ("fft", "fft")  # 32.06
    assert choose((13, 13), num_patterns=7) == ("fft", "fft")
    assert choose((13, 13), c=15) == ("fft", "fft")


def test_exports_take_real_products(monkeypatch):
    """Small grids of known size by rows, larger and free ones by transforms of all axes."""
    monkeypatch.setattr(circular, "is_exporting", lambda: True)
    assert choose((14, 14)) == choose((4, 7, 7)) == ("rows", "rows")
    assert choose((28, 28)) == ("dft", "dft")
    assert choose((torch.tensor(7), 7)) == ("dft", "dft"), "a size that is no number is known only when the graph runs"
