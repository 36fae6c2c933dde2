"""Stochastic depth and rounded widths against timm's."""

import pytest
import timm.layers
import torch

from mmlisa.models.layers import Block, DropPath, SepConv, make_divisible


@pytest.mark.parametrize("prob", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(16, 5, 3), (16, 3, 4, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_stochastic_depth(prob, shape, training):
    x = torch.randn(shape)
    outputs = []
    for layer in (DropPath(prob), timm.layers.DropPath(prob)):
        torch.manual_seed(1)
        outputs.append(layer.train(training)(x))
    torch.testing.assert_close(*outputs)
    dropped = (outputs[0].flatten(1) == 0).all(1)
    assert dropped.float().mean() == pytest.approx(prob if training else 0, abs=0.3)


@pytest.mark.parametrize("divisor", [8, 16])
def test_widths(divisor):
    for width in (1, 3, 7.9, 8, 10, 11.9, 12, 20, 36.8, 100, 100.5, 513):
        assert make_divisible(width, divisor) == timm.layers.make_divisible(width, divisor)


def test_a_block_whose_branches_are_dropped_is_the_identity():
    block = Block(8, SepConv(8, 3), mlp_ratio=2, drop_path=1.0).train()
    x = torch.randn(2, 20, 8)
    torch.testing.assert_close(block(x, (4, 5)), x)
