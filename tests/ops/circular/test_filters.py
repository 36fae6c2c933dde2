import pytest
import torch

from mmlisa import ops


@pytest.mark.parametrize("grid", [(6,), (4, 5), (3, 4, 6)])
def test_is_a_circular_convolution(grid):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *grid, dtype=torch.double)
    taps = torch.randn(3, *grid, dtype=torch.double)
    spectrum = torch.fft.rfftn(taps, dim=tuple(range(1, taps.ndim)))
    expected = torch.einsum("cij,bcj->bci", ops.circulant(taps, grid), x.flatten(2)).unflatten(2, grid)
    torch.testing.assert_close(ops.global_filter(x, spectrum), expected)


def test_resized_filter_keeps_its_taps():
    taps = torch.randn(2, 5, 7, dtype=torch.double)
    spectrum = torch.fft.rfft2(taps)
    larger = torch.fft.irfft2(ops.resize_spectrum(spectrum, (5, 7), (8, 9)), s=(8, 9))
    torch.testing.assert_close(larger[:, :3, :4], taps[:, :3, :4])
    torch.testing.assert_close(larger[:, -2:, -3:], taps[:, -2:, -3:])
    assert larger[:, 3:6].abs().max() < 1e-12
