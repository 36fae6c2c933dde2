import torch

from mmlisa.ops.tokenwise import PIECE, add_residual, tokenwise


def test_pieces_equal_the_whole_and_only_inference_is_cut():
    torch.manual_seed(0)
    calls = []

    def function(x):
        calls.append(x.shape)
        return x.square() + x.flip(-1)

    # Wide enough for pieces of 100 tokens and a shorter last one.
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
    assert [shape[0] for shape in calls] == [100] * 7 + [50]
    assert torch.equal(pieces, whole)
    assert pieces.data_ptr() == x.data_ptr()


def test_residual_is_summed_in_place_in_inference_alone_and_never_in_a_narrower_type():
    x, branch = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    whole = x + branch
    assert torch.equal(add_residual(x, branch), whole)
    with torch.no_grad():
        half = branch.bfloat16()
        assert torch.equal(add_residual(x, half), x + half)
        assert torch.equal(add_residual(x, branch), whole)
    assert torch.equal(branch, whole)
