from itertools import product

import pytest
import torch

from mmlisa.ops import circulant, toeplitz


@pytest.mark.parametrize("grid", [(5,), (3, 4), (2, 3, 4)])
def test_entries(grid):
    table, kernel = torch.randn(2, *(2 * g - 1 for g in grid)), torch.randn(2, *grid)
    full, cyclic = toeplitz(table, grid), circulant(kernel, grid)
    tokens = list(product(*map(range, grid)))
    for (i, a), (j, b) in product(enumerate(tokens), enumerate(tokens)):
        offset = [p - q for p, q in zip(a, b, strict=True)]
        middle = tuple(o + g - 1 for o, g in zip(offset, grid, strict=True))
        wrapped = tuple(o % g for o, g in zip(offset, grid, strict=True))
        assert torch.equal(full[:, i, j], table[(slice(None), *middle)])
        assert torch.equal(cyclic[:, i, j], kernel[(slice(None), *wrapped)])
