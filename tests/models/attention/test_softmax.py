import pytest
import torch
from timm.models.vision_transformer import Attention
from torch import nn

from mmlisa.models.attention import build_attention


def reference(operator, x, bias):
    """Softmax attention as its formula stands; ``bias: [h, N, N]``."""
    batch, n, _ = x.shape
    query, key, value = operator.qkv(x).reshape(batch, n, 3, operator.num_heads, -1).permute(2, 0, 3, 1, 4)
    logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + bias
    return operator.proj((logits.softmax(-1) @ value).transpose(1, 2).reshape(batch, n, -1))


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("rpe", [None, "shared", "head"])
def test_equals_the_formula(rpe, prefix):
    torch.manual_seed(0)
    operator = build_attention(dict(type="SoftmaxAttention", rpe=rpe), 32, 2, (3, 4)).double()
    x = torch.randn(2, 12 + prefix, 32, dtype=torch.double)
    bias = torch.zeros(2, 12 + prefix, 12 + prefix, dtype=torch.double)
    if rpe:
        nn.init.normal_(operator.rpe.table)
        for i in range(12):
            for j in range(12):
                bias[:, prefix + i, prefix + j] = operator.rpe.table[..., i // 4 - j // 4 + 2, i % 4 - j % 4 + 3]
    torch.testing.assert_close(operator(x, (3, 4)), reference(operator, x, bias))


def test_equals_timm():
    theirs = Attention(48, num_heads=3, qkv_bias=False)
    ours = build_attention(dict(type="SoftmaxAttention", qkv_bias=False), 48, 3, (4, 4))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 17, 48)
    torch.testing.assert_close(ours(x, (4, 4)), theirs(x))
