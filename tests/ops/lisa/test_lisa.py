"""LiSA against its equations with circulant matrices, and the exact resampling of its kernels."""

import numpy as np
import pytest
import torch

from mmlisa import ops

GRIDS = [(7,), (6, 5), (5, 7), (1, 9), (3, 4, 5), (13, 3)]


def inputs(grid, bias_a=False, heads=2, width=3, patterns=2, batch=2):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    tensors = [
        *(draw(batch, heads, width, *grid) for _ in range(3)),
        draw(width, patterns, *grid),
        draw(patterns, *grid),
        draw(width, patterns),
        draw(width, patterns) if bias_a else None,
    ]
    tensors[0], tensors[1] = (torch.nn.functional.normalize(t, dim=2) for t in tensors[:2])
    return tensors


def equations(query, key, value, kernel_a, kernel_b, bias, bias_a=None):
    """The operator's equations, token by token in Python: independent of every implementation."""
    grid = query.shape[3:]
    tokens = list(torch.cartesian_prod(*(torch.arange(n) for n in grid)).reshape(-1, len(grid)).tolist())
    out = torch.zeros_like(query)
    for i in tokens:
        at_i = (..., *i)
        s = torch.zeros(*query.shape[:2], kernel_b.shape[0], dtype=query.dtype)
        gb = torch.zeros(*value.shape[:3], kernel_b.shape[0], dtype=query.dtype)
        for n in tokens:
            offset = tuple((a - b) % size for a, b, size in zip(i, n, grid, strict=True))
            w_a, w_b = kernel_a[(..., *offset)], kernel_b[(..., *offset)]  # [c, D], [D]
            s += torch.einsum("bhc,bhc,cd->bhd", query[at_i], key[(..., *n)], w_a)
            gb += value[(..., *n)][..., None] * w_b
        if bias_a is not None:
            s += torch.einsum("bhc,cd->bhd", query[at_i], bias_a)
        out[at_i] = torch.einsum("bhd,bhvd->bhv", s, gb + bias)
    return out


@pytest.mark.parametrize("backend", ["reference", "fft", "auto"])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("bias_a", [False, True])
def test_equals_the_equations(grid, bias_a, backend):
    tensors = inputs(grid, bias_a=bias_a)
    torch.testing.assert_close(ops.lisa(*tensors, backend=backend), equations(*tensors), rtol=1e-10, atol=1e-10)


def test_constant_tokens_and_shifts():
    """Constant tokens give a constant output; a circular shift of the tokens shifts the output."""
    query, key, value, *parameters = inputs((6, 5))
    constant = [t[..., :1, :1].expand_as(t) for t in (query, key, value)]
    y = ops.lisa(*constant, *parameters)
    torch.testing.assert_close(y, y[..., :1, :1].expand_as(y))
    shifted = ops.lisa(*(t.roll((2, 3), dims=(-2, -1)) for t in (query, key, value)), *parameters)
    torch.testing.assert_close(shifted, ops.lisa(query, key, value, *parameters).roll((2, 3), dims=(-2, -1)))


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
    *tokens, kernel_a, kernel_b, bias, _ = inputs(old)
    new = tuple(n * f for n, f in zip(old, factor, strict=True))
    small = ops.lisa(*tokens, kernel_a, kernel_b, bias)
    tiled = [t.repeat(1, 1, 1, *factor) for t in tokens]
    large = ops.lisa(*tiled, ops.resize_kernel(kernel_a, new), ops.resize_kernel(kernel_b, new), bias)
    torch.testing.assert_close(large, small.repeat(1, 1, 1, *factor), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("old", [4, 5, 8])
@pytest.mark.parametrize("new", [3, 4, 6, 7, 16, 17])
def test_resized_kernel_keeps_symmetry_and_sum(old, new):
    kernel = torch.randn(old, dtype=torch.float64)
    symmetric = kernel + kernel.flip(0).roll(1)
    resized = ops.resize_kernel(symmetric, (new,))
    torch.testing.assert_close(resized, resized.flip(0).roll(1))
    torch.testing.assert_close(ops.resize_kernel(kernel, (new,)).sum(), kernel.sum())


def test_resized_kernel_has_the_same_spectrum():
    """Zero-padding in the middle samples the same continuous spectrum more finely: every second sample is the old one."""
    kernel = torch.randn(3, 5, 7, dtype=torch.float64)
    fine = torch.fft.fft2(ops.resize_kernel(kernel, (10, 14)))
    torch.testing.assert_close(fine[:, ::2, ::2], torch.fft.fft2(kernel))


@pytest.mark.parametrize(("old", "new"), [((5, 4), (8, 9)), ((7, 6), (4, 3)), ((3, 8), (5, 8))])
def test_taps_are_interpolated_around_the_origin(old, new):
    """Linearly along each axis and around the circle, by NumPy; the origin stays where it is."""
    kernel = torch.randn(2, *old, dtype=torch.float64)
    expected = kernel.numpy()
    for axis, (n, m) in enumerate(zip(old, new, strict=True), start=1):
        places = np.fft.fftfreq(m) * n  # the signed offsets, in taps of the old grid
        expected = np.apply_along_axis(
            lambda taps, places=places, n=n: np.interp(places, np.arange(n), taps, period=n), axis, expected
        )
    torch.testing.assert_close(ops.resize_kernel(kernel, new, "interpolate"), torch.from_numpy(expected))


@pytest.mark.parametrize("size", [5, 6, 8, 13, 14, 28])
def test_an_interpolated_symmetric_kernel_is_symmetric(size):
    kernel = torch.rand(7, 6, dtype=torch.float64)
    kernel = kernel + torch.roll(kernel.flip(0, 1), (1, 1), (0, 1))
    resized = ops.resize_kernel(kernel[None], (size, size + 1), "interpolate")[0]
    torch.testing.assert_close(resized, torch.roll(resized.flip(0, 1), (1, 1), (0, 1)))
    assert resized[0, 0] == kernel[0, 0]
