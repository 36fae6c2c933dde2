import pytest
import torch
from torch import nn

from mmlisa.models.layers import ChannelLinear
from mmlisa.ops import tokenwise as module
from mmlisa.ops.tokenwise import PIECE, add_in_bands, add_residual, tokenwise


def test_pieces_equal_the_whole_and_only_inference_is_cut():
    torch.manual_seed(0)
    calls = []

    def function(x):
        calls.append(x.shape)
        return x.square() + x.flip(-1)

    # Wide enough for pieces of at most 100 tokens.
    width = PIECE * torch.get_num_threads() // 100
    x = torch.randn(2, 15, 25, 3)
    before = x.clone()
    whole = tokenwise(function, x, width=width)
    assert calls == [x.shape]
    assert torch.equal(x, before)
    calls.clear()
    with torch.no_grad():
        tokenwise(function, x.clone(), width=5)
        assert calls == [x.shape]
        calls.clear()
        pieces = tokenwise(function, x, width=width)
    assert [shape[0] for shape in calls] == [94] * 7 + [92]
    assert torch.equal(pieces, whole)
    assert pieces.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("kernel_size", [None, 1, 3, 7])
@pytest.mark.parametrize("batch", [1, 2])
def test_bands_equal_the_whole(batch, kernel_size, monkeypatch):
    torch.manual_seed(0)
    expand, reduce = ChannelLinear(3, 12).double(), ChannelLinear(12, 3).double()
    layers = [expand, torch.tanh, reduce]
    if kernel_size is not None:
        layers.insert(2, nn.Conv2d(12, 12, kernel_size, padding=kernel_size // 2, groups=12).double())
    x = torch.randn(batch, 37, 10, 3, dtype=torch.double).movedim(-1, 1)
    kept = x.clone()
    whole = add_in_bands(x, layers, width=12)
    assert torch.equal(x, kept)
    rows = []
    layers[0] = _counting(layers[0], rows)
    monkeypatch.setattr(module, "PIECE", 8 * 12 * 10 * batch // torch.get_num_threads())
    with torch.no_grad():
        bands = add_in_bands(x, layers, width=12)
    assert len(rows) > 1
    assert sum(rows) == 37
    torch.testing.assert_close(bands, whole, rtol=1e-12, atol=1e-12)
    assert bands.data_ptr() == x.data_ptr()


def test_no_tokens_are_no_mistake():
    with torch.no_grad():
        assert tokenwise(torch.tanh, torch.empty(0, 5, 3), width=12).shape == (0, 5, 3)


def _counting(layer, rows):
    def call(x):
        rows.append(x.shape[2])
        return layer(x)

    return call


def test_residual_is_summed_in_place_in_inference_alone_and_never_in_a_narrower_type():
    x, branch = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    whole = x + branch
    assert torch.equal(add_residual(x, branch), whole)
    with torch.no_grad():
        half = branch.bfloat16()
        assert torch.equal(add_residual(x, half), x + half)
        assert torch.equal(add_residual(x, branch), whole)
    assert torch.equal(branch, whole)
