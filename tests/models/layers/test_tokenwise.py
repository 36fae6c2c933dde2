import torch

from mmlisa.models.layers import tokenwise


def test_pieces_equal_the_whole_and_only_inference_is_cut():
    torch.manual_seed(0)
    calls = []

    def function(x, y):
        calls.append(x.shape)
        return torch.cat([x.square(), y], dim=-1)

    # Wide enough for pieces of 100 tokens and a shorter last one.
    width = 2**18 * torch.get_num_threads() // 100
    x, y = torch.randn(2, 15, 25, 3), torch.randn(2, 15, 25, 2)
    whole = tokenwise(function, x, y, width=width)
    assert calls == [x.shape]
    calls.clear()
    with torch.no_grad():
        pieces = tokenwise(function, x, y, width=width)
    assert [shape[0] for shape in calls] == [100] * 7 + [50]
    assert torch.equal(pieces, whole)
    calls.clear()
    with torch.no_grad():
        tokenwise(function, x, y, width=5)
    assert calls == [x.shape]
