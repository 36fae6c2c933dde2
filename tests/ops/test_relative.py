from itertools import product

import pytest
import torch

from mmlisa import ops


@pytest.mark.parametrize("grid", [(5,), (3, 4), (2, 3, 4)])
def test_entries(grid):
    table, kernel = torch.randn(2, *(2 * g - 1 for g in grid)), torch.randn(2, *grid)
    full, cyclic = ops.toeplitz(table, grid), ops.circulant(kernel, grid)
    tokens = list(product(*map(range, grid)))
    for (i, a), (j, b) in product(enumerate(tokens), enumerate(tokens)):
        offset = [p - q for p, q in zip(a, b, strict=True)]
        middle = tuple(o + g - 1 for o, g in zip(offset, grid, strict=True))
        wrapped = tuple(o % g for o, g in zip(offset, grid, strict=True))
        assert torch.equal(full[:, i, j], table[(slice(None), *middle)])
        assert torch.equal(cyclic[:, i, j], kernel[(slice(None), *wrapped)])


def test_resized_filter_keeps_its_taps():
    taps = torch.randn(2, 5, 7, dtype=torch.double)
    spectrum = torch.fft.rfft2(taps)
    larger = torch.fft.irfft2(ops.resize_spectrum(spectrum, (5, 7), (8, 9)), s=(8, 9))
    torch.testing.assert_close(larger[:, :3, :4], taps[:, :3, :4])
    torch.testing.assert_close(larger[:, -2:, -3:], taps[:, -2:, -3:])
    assert larger[:, 3:6].abs().max() < 1e-12
