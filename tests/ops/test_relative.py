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


def test_table_of_another_grid():
    with pytest.raises(ValueError, match=r"\(3, 4\) must end in \(5, 7\)"):
        toeplitz(torch.randn(2, 7, 5), (3, 4))


def test_transforms_of_functions_see_the_same_gradient():
    kernel = torch.randn(3, 4, 4, dtype=torch.float64, requires_grad=True)

    def function(k):
        return circulant(k, (4, 4)).sin().square().sum()

    (expected,) = torch.autograd.grad(function(kernel), kernel)
    torch.testing.assert_close(torch.func.grad(function)(kernel.detach()), expected)
    tangent = torch.randn_like(kernel)
    _, moved = torch.func.jvp(function, (kernel.detach(),), (tangent,))
    torch.testing.assert_close(moved, (expected * tangent).sum())
