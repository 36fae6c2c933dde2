"""FLatten's operator and its windows by definition; tests/conversion compares the hosts with those of the libraries."""

import pytest
import torch
from torch import nn

from helpers.networks import randomised
from mmlisa.models.attention import build_attention
from mmlisa.models.backbones import FLattenSwin


def test_windows_are_maps_of_their_own():
    """Each window gives what the operator gives on that window alone; at the border, on the part that is of the map."""
    whole = randomised(build_attention(dict(type="FocusedLinearAttention", position=False), 16, 2, (4, 4))).double()
    windowed = build_attention(dict(type="FocusedLinearAttention", position=False, window=4), 16, 2, (8, 8)).double()
    windowed.load_state_dict(whole.state_dict())
    x = torch.randn(2, 6, 9, 16, dtype=torch.float64)
    y = windowed(x.flatten(1, 2), (6, 9)).unflatten(1, (6, 9))
    for top in (0, 4):
        for left in (0, 4, 8):
            part = x[:, top : top + 4, left : left + 4]
            grid = tuple(part.shape[1:3])
            expected = whole(part.flatten(1, 2), grid).unflatten(1, grid)
            torch.testing.assert_close(y[:, top : top + 4, left : left + 4], expected)


def test_shifted_windows_are_rolled_there_and_back():
    cfg = dict(type="FocusedLinearAttention", window=4)
    plain = randomised(build_attention(cfg, 16, 2, (8, 8))).double()
    shifted = build_attention(dict(cfg, shift=True), 16, 2, (8, 8)).double()
    shifted.load_state_dict(plain.state_dict())
    for grid, shift in (((8, 12), 2), ((6, 9), 2), ((4, 12), 0)):
        x = torch.randn(2, *grid, 16, dtype=torch.double)
        rolled = plain(x.roll((-shift, -shift), (1, 2)).flatten(1, 2), grid).unflatten(1, grid)
        expected = rolled.roll((shift, shift), (1, 2)).flatten(1, 2)
        torch.testing.assert_close(shifted(x.flatten(1, 2), grid), expected)


def test_every_second_block_shifts_its_windows():
    arch = dict(base="tiny", channels=(16, 32, 64, 128), num_heads=(1, 2, 4, 8), depths=(3, 2, 2, 2))
    for options, expected in ((dict(window=7, shift=True), [False, True, False]), (dict(window=7), [False] * 3)):
        model = FLattenSwin(arch, attention=options)
        assert [block.attn.shift for block in model.stages[0].blocks] == expected
    with pytest.raises(ValueError, match="shift=True"):
        FLattenSwin(arch, attention=dict(shift=True))


def test_cross_shaped_windows_by_definition():
    """Stripes of one branch see their own stripe only; stage 4 and a grid within the split are global."""
    operator = randomised(
        build_attention(dict(type="CrossShapedWindowAttention", split_size=2), 16, 4, (8, 8))
    ).double()
    x = torch.randn(1, 64, 16, dtype=torch.float64)
    operator.proj = nn.Identity()
    changed = x.clone().unflatten(1, (8, 8))
    changed[:, 5, 6] += 1
    moved = (operator(x, (8, 8)) - operator(changed.flatten(1, 2), (8, 8))).abs().unflatten(1, (8, 8))[0]
    vertical, horizontal = moved[..., :8].amax(-1) > 1e-12, moved[..., 8:].amax(-1) > 1e-12
    assert vertical.nonzero()[:, 1].unique().tolist() == [6, 7]
    assert horizontal.nonzero()[:, 0].unique().tolist() == [4, 5]
    assert vertical[:, 6:].all()
    assert horizontal[4:6].all()
    # One side within a stripe makes the attention global: a stripe along the other side would be the whole map.
    for grid, branches in {(7, 7): 1, (7, 12): 1, (12, 7): 1, (8, 12): 2, (12, 8): 2}.items():
        operator = build_attention(dict(type="CrossShapedWindowAttention", split_size=7), 16, 2, grid)
        assert len(operator.lepe) == branches, grid
