"""The classifier's head by its formula, and where its layers start."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("mmpretrain")
from torch import nn

from mmlisa.models.heads import MlpClsHead

ACTIVATIONS = {"GELU": F.gelu, "ReLU": F.relu, "SquaredReLU": lambda x: F.relu(x) ** 2}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pre_norm", [False, True])
def test_forward(activation, pre_norm):
    """MetaFormer's order: the hidden layer, its activation, a norm, the dropout, the classes; of the last map alone."""
    torch.manual_seed(0)
    head = MlpClsHead(5, 12, activation=activation, pre_norm=pre_norm, dropout=0.4).double().eval()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    first, last = (torch.randn(4, 12, dtype=torch.float64) for _ in range(2))
    x = F.layer_norm(last, (12,), head.pre_norm.weight, head.pre_norm.bias, 1e-6) if pre_norm else last
    x = ACTIVATIONS[activation](F.linear(x, head.fc1.weight, head.fc1.bias))
    x = F.layer_norm(x, (48,), head.norm.weight, head.norm.bias, 1e-6)
    expected = F.linear(x, head.fc2.weight, head.fc2.bias)
    torch.testing.assert_close(head((first, last)), expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(head.train()((first, last)), expected)


def test_start():
    """Linear layers at 0.02; a last one that is to start smaller at that share of it."""
    torch.manual_seed(0)
    head = MlpClsHead(50, 40, init_scale=0.001)
    head.init_weights()
    assert head.fc1.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert head.fc2.weight.std().item() == pytest.approx(0.02 * 0.001, rel=0.05)
