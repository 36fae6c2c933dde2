"""Windows of a map, one by one."""

import pytest
import torch

from mmlisa.models.layers import merge_windows, pad_to_windows, split_windows, valid_tokens
from mmlisa.models.layers import windows as module


@pytest.mark.parametrize("window", [(2, 3), (3, 2), (4, 4), (7, 1)])
@pytest.mark.parametrize("grid", [(6, 6), (5, 9), (7, 4)])
def test_windows_of_a_map(grid, window):
    x = torch.randn(2, *grid, 3)
    padded = tuple(pad_to_windows(x, window).shape[1:3])
    windows = split_windows(pad_to_windows(x, window), window)
    counts = [-(-size // side) for size, side in zip(grid, window, strict=True)]
    assert padded == tuple(count * side for count, side in zip(counts, window, strict=True))
    whole = torch.zeros(2, *padded, 3)
    whole[:, : grid[0], : grid[1]] = x
    inside = torch.zeros(padded, dtype=torch.bool)
    inside[: grid[0], : grid[1]] = True
    parts, valid = [], []
    for row in range(counts[0]):
        for column in range(counts[1]):
            place = (slice(row * window[0], (row + 1) * window[0]), slice(column * window[1], (column + 1) * window[1]))
            parts.append(whole[:, place[0], place[1]].flatten(1, 2))
            valid.append(inside[place].flatten())
    assert torch.equal(windows, torch.stack(parts, dim=1).flatten(0, 1))
    assert torch.equal(merge_windows(windows, window, padded), whole)
    found = valid_tokens(grid, window, x.device)
    assert (found is None) == (padded == grid)
    assert found is None or torch.equal(found, torch.stack(valid))


@pytest.mark.parametrize("grid", [(7, 20), (20, 7), (6, 7), (8, 20), (8, 8)])
def test_the_shift_of_free_sizes_is_that_of_fixed_ones(grid, monkeypatch):
    """Neither axis of a map is shifted if one window covers the other axis."""
    fixed = module.window_shift(grid, (7, 7), torch.device("cpu"))
    monkeypatch.setattr(module, "has_free_size", lambda *sides: True)
    free = module.window_shift(grid, (7, 7), torch.device("cpu"))
    assert tuple(map(int, free)) == (fixed or (0, 0))
