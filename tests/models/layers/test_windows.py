"""Windows of a map by PyTorch's unfold."""

import pytest
import torch
import torch.nn.functional as F

from mmlisa.models.layers import windows as module
from mmlisa.models.layers.windows import merge_windows, pad_to_windows, split_windows, valid_tokens


@pytest.mark.parametrize("window", [(2, 3), (3, 2), (4, 4), (7, 1)])
@pytest.mark.parametrize("grid", [(6, 6), (5, 9), (7, 4)])
def test_windows_of_a_map(grid, window):
    x = torch.randn(2, *grid, 3)
    padded = tuple(pad_to_windows(x, window).shape[1:3])
    windows = split_windows(pad_to_windows(x, window), window)
    assert padded == tuple(-(-size // side) * side for size, side in zip(grid, window, strict=True))
    whole = F.pad(x, (0, 0, 0, padded[1] - grid[1], 0, padded[0] - grid[0]))
    parts = F.unfold(whole.permute(0, 3, 1, 2), window, stride=window).unflatten(1, (3, -1))
    assert torch.equal(windows, parts.permute(0, 3, 2, 1).flatten(0, 1))
    assert torch.equal(merge_windows(windows, window, padded), whole)
    found = valid_tokens(grid, window, x.device)
    inside = F.pad(torch.ones(1, 1, *grid), (0, padded[1] - grid[1], 0, padded[0] - grid[0]))
    assert (found is None) == (padded == grid)
    assert found is None or torch.equal(found, F.unfold(inside, window, stride=window)[0].mT.bool())


@pytest.mark.parametrize("grid", [(7, 20), (20, 7), (6, 7), (8, 20), (8, 8)])
def test_the_shift_of_free_sizes_is_that_of_fixed_ones(grid, monkeypatch):
    """Neither axis of a map is shifted if one window covers the other axis."""
    fixed = module.window_shift(grid, (7, 7), torch.device("cpu"))
    monkeypatch.setattr(module, "has_free_size", lambda *sides: True)
    free = module.window_shift(grid, (7, 7), torch.device("cpu"))
    assert tuple(map(int, free)) == (fixed or (0, 0))
