"""LiSA against its equations with circulant matrices, and the exact resampling of its kernels."""

import pytest
import torch

from mmlisa import ops


def inputs(grid):
    """For two heads of three channels and two patterns."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 2, 3, *grid)] * 3 + [(3, 2, *grid), (2, *grid), (3, 2)]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


@pytest.mark.parametrize("backend", ["reference", "fft"])
def test_wrong_shapes_are_named(backend):
    tensors = inputs((6, 5))
    with pytest.raises(ValueError, match="kernel_b"):
        ops.lisa(*tensors[:4], tensors[4][..., :4], tensors[5], backend=backend)
    with pytest.raises(ValueError, match="one shape"):
        ops.lisa(tensors[0], tensors[1][..., :4], *tensors[2:], backend=backend)
    with pytest.raises(ValueError, match="no-such"):
        ops.lisa(*tensors, backend="no-such")


@pytest.mark.parametrize("old", [(6, 5), (5, 5), (4, 6), (7, 2)])
@pytest.mark.parametrize("factor", [(2, 3), (1, 2), (3, 1)])
def test_resized_kernel_gives_tiled_output_for_tiled_input(old, factor):
    """On an integer multiple of the grid, a periodically tiled input gives the tiled output exactly."""
    *tokens, kernel_a, kernel_b, bias = inputs(old)
    new = tuple(n * f for n, f in zip(old, factor, strict=True))
    small = ops.lisa(*tokens, kernel_a, kernel_b, bias)
    tiled = [t.repeat(1, 1, 1, *factor) for t in tokens]
    large = ops.lisa(*tiled, ops.resize_kernel(kernel_a, new), ops.resize_kernel(kernel_b, new), bias)
    torch.testing.assert_close(large, small.repeat(1, 1, 1, *factor), rtol=1e-10, atol=1e-10)
