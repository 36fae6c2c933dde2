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
