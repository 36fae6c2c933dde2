"""Position embeddings on other grids, against torch's bicubic interpolation of the map."""

import pytest
import torch
import torch.nn.functional as F

from mmlisa.models.layers import PositionResize


@pytest.mark.parametrize("grid", [(6, 9), (1, 7), (12, 3)])
@pytest.mark.parametrize("prefix", [0, 2])
def test_is_bicubic_interpolation_beside_the_prefix(grid, prefix):
    table = torch.randn(1, prefix + 20, 3, dtype=torch.float64, requires_grad=True)
    y = PositionResize((4, 5))(table, grid)
    assert torch.equal(y[:, :prefix], table[:, :prefix])
    as_map = table[:, prefix:].transpose(1, 2).reshape(1, 3, 4, 5)
    expected = F.interpolate(as_map, size=grid, mode="bicubic").flatten(2).transpose(1, 2)
    torch.testing.assert_close(y[:, prefix:], expected)
    torch.testing.assert_close(
        torch.autograd.grad(y.sin().sum(), table)[0][:, prefix:],
        torch.autograd.grad(expected.sin().sum(), table)[0][:, prefix:],
    )


def test_the_pretraining_grid_passes():
    table = torch.randn(1, 21, 3)
    assert PositionResize((4, 5))(table, [4, 5]) is table


def test_half_precision_is_interpolated_in_fp32():
    table = torch.randn(1, 20, 3).bfloat16()
    y = PositionResize((4, 5))(table, (6, 7))
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, PositionResize((4, 5))(table.float(), (6, 7)).bfloat16())
