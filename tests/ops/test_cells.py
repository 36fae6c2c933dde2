"""Cells in the place of far tokens: where nothing is lost, and what it does to prefix tokens and scores of trained networks."""

from math import prod

import pytest
import torch
import torch.nn.functional as F

from helpers.formulas import value_and_gradients
from mmlisa.errors import UserError
from mmlisa.ops import cell_attention


def draw(grid, prefix=1, heads=2, width=8, scale=1.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shape = (2, heads, prefix + prod(grid), width)
    query, key, value = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    return [
        (query * scale).to(dtype).requires_grad_(),
        key.to(dtype).requires_grad_(),
        value.to(dtype).requires_grad_(),
    ]


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(
    ("grid", "window", "cells"),
    [
        ((13, 9), 4, 5),
        ((7, 20), 4, 3),
        ((3, 20), 4, 8),
        ((1, 9), 2, 3),
        ((6, 6), 3, 0),
        ((7, 5), 3, 0),
        ((23, 1), 5, 2),
        ((9, 7), 0, 4),
    ],
)
def test_prefix_tokens(grid, window, cells, prefix):
    tokens = draw(grid, prefix)
    y = cell_attention(*tokens, grid, window, cells)
    expected = cell_attention(*tokens, grid, window, cells, backend="reference")
    found = value_and_gradients(y, tokens)
    torch.testing.assert_close(found, value_and_gradients(expected, tokens), rtol=1e-11, atol=1e-12)
    softmax = F.scaled_dot_product_attention(*tokens)
    torch.testing.assert_close(y[:, :, :prefix], softmax[:, :, :prefix])


@pytest.mark.parametrize(("grid", "window", "cells"), [((6, 5), 6, 2), ((6, 5), 2, 6), ((1, 1), 1, 1), ((6, 5), 4, 6)])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_one_window_or_cells_of_one_token_are_softmax_attention(grid, window, cells, backend):
    tokens = draw(grid)
    y = cell_attention(*tokens, grid, window, cells, backend=backend)
    torch.testing.assert_close(y, F.scaled_dot_product_attention(*tokens), rtol=1e-12, atol=1e-12)


def test_the_mean_query_loses_nothing():
    """All queries alike, however sharp, and cells that windows do not cut."""
    query, key, value = draw((8, 16), scale=5.0)
    query = query[:, :, :1].expand_as(query)
    y = cell_attention(query, key, value, (8, 16), 4, 4)
    torch.testing.assert_close(y, F.scaled_dot_product_attention(query, key, value), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_with_scores_of_trained_networks(dtype):
    """DINOv2's scores reach 300, so that a rounded one would count for another token."""
    tokens = draw((19, 14), width=64, scale=12.0, dtype=dtype)
    assert (tokens[0] @ tokens[1].mT / 8).abs().max() > 40
    y = cell_attention(*tokens, (19, 14), 5, 4)
    assert y.dtype == dtype
    exact = [t.double() for t in tokens]
    expected = cell_attention(*exact, (19, 14), 5, 4, backend="reference")
    softmax = F.scaled_dot_product_attention(*tokens).double()
    rounding = (softmax - F.scaled_dot_product_attention(*exact)).abs().mean()
    assert (y.double() - expected).abs().mean() < 3 * rounding


@pytest.mark.parametrize(("options", "name"), [(dict(window=0, cells=0), "window=0"), (dict(cells=-1), "cells=-1")])
def test_options(options, name):
    with pytest.raises(UserError, match=name):
        cell_attention(*draw((3, 3)), (3, 3), **options)


def test_a_grid_of_more_tokens():
    with pytest.raises(UserError, match=r"grid=\(4, 3\)"):
        cell_attention(*draw((3, 3)), (4, 3))
