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


def test_half_precision_is_interpolated_in_fp32():
    table = torch.randn(1, 20, 3).bfloat16()
    y = PositionResize((4, 5))(table, (6, 7))
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, PositionResize((4, 5))(table.float(), (6, 7)).bfloat16())


@pytest.mark.parametrize("rectangle", [None, (2, 8)])
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_positions_of_a_checkpoint_with_more_prefix_tokens(wanted, prefix, rectangle):
    """As DeiT's distillation token, which comes second: it is left out, and no position moves by a row."""
    theirs, ours = torch.randn(1, prefix + 16, 3), torch.zeros(1, wanted + 15, 3)
    found = PositionResize((3, 5)).from_another(theirs, ours, rectangle)
    if wanted > prefix:
        assert found is theirs
        return
    as_map = theirs[:, prefix:].mT.unflatten(2, rectangle or (4, 4))
    expected = F.interpolate(as_map, size=(3, 5), mode="bicubic").flatten(2).mT
    torch.testing.assert_close(found, torch.cat([theirs[:, :wanted], expected], dim=1))
