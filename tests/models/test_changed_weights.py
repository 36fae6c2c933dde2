"""Evaluation uses the weights that a model has, however they came there: no operator keeps anything stale."""

import copy

import pytest
import torch

from mmlisa.models.attention import build_attention

FACTOR = 0.97


def through_data(model):
    """As MMEngine's averaged weights are updated."""
    for p in model.parameters():
        p.data.mul_(FACTOR)


def exchanged_data(model):
    """As MMEngine's EMAHook exchanges weights and averages."""
    for p in model.parameters():
        p.data = FACTOR * p.data


def loaded(model):
    model.load_state_dict({name: FACTOR * p for name, p in model.state_dict().items()})


@pytest.mark.parametrize("change", [through_data, exchanged_data, loaded])
@pytest.mark.parametrize("name", ["LiSA", "FocusedLinearAttention"])
@torch.no_grad()
def test_changed_weights(name, change):
    """On another grid than the pretraining one, so that kernels and positions are resized, and kept."""
    torch.manual_seed(0)
    operator, x = build_attention(dict(type=name), 32, 2, (6, 7)).eval(), torch.randn(1, 56, 32)
    for p in operator.parameters():
        p.normal_()
    changed = copy.deepcopy(operator)
    change(changed)
    before, expected = operator(x, (7, 8)), changed(x, (7, 8))
    change(operator)
    assert not torch.equal(before, expected)
    assert torch.equal(operator(x, (7, 8)), expected)


@torch.no_grad()
def test_functional_call():
    """A tensor in place of the parameter, at an address that was freed before."""
    operator, x = build_attention(dict(type="LiSA"), 32, 2, (6, 7)).eval(), torch.randn(1, 56, 32)
    for factor in (1.0, 0.5, 2.0):
        weights = {name: factor * p for name, p in operator.named_parameters()}
        found = torch.func.functional_call(operator, weights, (x, (7, 8)))
        fresh = build_attention(dict(type="LiSA"), 32, 2, (6, 7)).eval()
        fresh.load_state_dict(weights)
        assert torch.equal(found, fresh(x, (7, 8)))
