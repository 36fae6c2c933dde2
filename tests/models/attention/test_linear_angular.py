"""The auxiliary branch: it has no parameters, counts for nothing above ε = 1, and is gone once dropped."""

import pytest
import torch
from torch import nn

from mmlisa.models.attention import LinearAngularAttention, build_attention, castling_operators, drop_aux, split_heads
from mmlisa.models.backbones import CastlingLCNetViT


def run(operator: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(2, 30, 32, requires_grad=True)
    y = operator(x, (5, 6))
    return [y, *torch.autograd.grad(y.sin().sum(), [x, *operator.parameters()])]


@pytest.fixture(params=[False, True], ids=["plain", "pooled"])
def operator(request) -> LinearAngularAttention:
    torch.manual_seed(0)
    return LinearAngularAttention(32, 2, grid=(5, 6), pooled=request.param, aux=True, epsilon=1.5).train()


def test_epsilon_above_one_is_the_dropped_branch_bit_for_bit(operator):
    masked = run(operator)
    drop_aux(operator)
    assert all(torch.equal(a, b) for a, b in zip(masked, run(operator), strict=True))


def test_the_branch_counts_below(operator):
    operator.epsilon = 0.02
    masked = run(operator)
    assert operator.mask_size == 2 * 30 * 30
    assert 0 < operator.mask_count <= operator.mask_size
    drop_aux(operator)
    assert not torch.allclose(masked[0], run(operator)[0])


def test_eval_is_castled_unless_asked(operator):
    operator.epsilon = 0.02
    trained, castled = run(operator)[0], run(operator.eval())[0]
    assert not torch.allclose(trained, castled)
    operator.aux_in_eval = True
    assert torch.equal(trained, run(operator)[0])


@pytest.mark.parametrize("name", ["Cosine", "PooledSoftmax"])
def test_every_kernel_takes_the_branch(name):
    """At ε = 0 it is softmax attention, added before the projection."""
    torch.manual_seed(0)
    cfg = dict(type=f"{name}Attention", aux=True, epsilon=0.0)
    operator = build_attention(cfg, 32, 2, (5, 6)).double().train()
    assert list(castling_operators(operator)) == [""]
    x = torch.randn(2, 30, 32, dtype=torch.double)
    trained, castled = operator(x, (5, 6)), operator.eval()(x, (5, 6))
    query, key, value = (split_heads(t, 2) for t in operator.qkv(x).chunk(3, dim=2))
    if operator.pool is not None:
        query, key, value = (pool(t, (5, 6)) for pool, t in zip(operator.pool, (query, key, value), strict=True))
    attended = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(trained - castled, attended @ operator.proj.weight.T)
    assert (
        operator.state_dict().keys()
        == build_attention(dict(type=f"{name}Attention"), 32, 2, (5, 6)).state_dict().keys()
    )


def test_drop_aux_of_a_model():
    backbone = CastlingLCNetViT(dict(base="small", scale=0.25))
    assert list(castling_operators(backbone)) == ["stages.2.blocks.0.attn", "stages.3.blocks.0.attn"]
    assert drop_aux(backbone) == 2
    assert drop_aux(backbone) == 0
