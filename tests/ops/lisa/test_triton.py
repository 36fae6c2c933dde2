"""The fused kernel in Triton's interpreter, which conftest asks for."""

import numpy as np
import pytest
import torch
from torch.torch_version import TorchVersion

from helpers.lisa import CASES, assert_same, make_inputs, value_and_gradients
from mmlisa.ops import lisa

triton = pytest.importorskip(
    "triton", minversion="3.2", reason="the interpreter of Triton 3.1 loses what is stored on a CPU"
)
pytestmark = pytest.mark.skipif(
    TorchVersion(triton.__version__) < "3.7" and TorchVersion(np.__version__) >= "2.4",
    reason="Triton's interpreter before 3.7 needs numpy < 2.4",
)


@pytest.mark.parametrize("encoding_bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradients_equal_the_reference(case, encoding_bias):
    inputs = make_inputs(case, encoding_bias=encoding_bias)
    assert_same(value_and_gradients(inputs, "triton"), value_and_gradients(inputs, "reference"), 1e-5)


def test_many_heads_and_wide_heads():
    for batch, heads, c, num_patterns, grid in ((3, 3, 16, 3, (7, 7)), (1, 2, 40, 2, (5, 3))):
        inputs = [torch.randn(batch, heads, c, *grid) for _ in range(3)]
        inputs += [torch.randn(*lead, *grid) for lead in ((c, num_patterns), (num_patterns,))]
        inputs.append(torch.randn(c, num_patterns))
        assert_same([lisa(*inputs, backend="triton")], [lisa(*inputs, backend="reference")], 1e-5)


def test_compiles_without_graph_breaks():
    inputs = make_inputs("even")
    compiled = torch.compile(lambda *args: lisa(*args, backend="triton"), backend="aot_eager", fullgraph=True)
    assert_same([compiled(*inputs)], [lisa(*inputs, backend="reference")], 1e-5)


def test_what_it_cannot_do_is_said(monkeypatch):
    for grid, dtype in (((17, 16), torch.float32), ((4, 4), torch.float64)):
        tokens = [torch.randn(1, 1, 2, *grid, dtype=dtype)] * 3
        kernels = [torch.randn(*lead, *grid, dtype=dtype) for lead in ((2, 1), (1,))]
        with pytest.raises(ValueError, match="at most 256 tokens in fp32"):
            lisa(*tokens, *kernels, torch.zeros(2, 1, dtype=dtype), backend="triton")
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(ValueError, match="needs a GPU, the tokens are on cpu"):
        lisa(*make_inputs("even"), backend="triton")
