"""Evaluation follows the weights: nothing that was derived from earlier ones is kept."""

import copy

import pytest
import torch

from helpers.backbones import CASES, KINDS
from mmlisa.registry import MODELS


def load(model):
    model.load_state_dict({key: 0.97 * t if t.is_floating_point() else t for key, t in model.state_dict().items()})


def train(model):
    with torch.no_grad():
        for p in model.train().parameters():
            p.mul_(0.97)


def exchange(model):
    """As MMEngine's EMAHook exchanges weights and averages."""
    for p in model.parameters():
        p.data = 0.97 * p.data


@pytest.mark.parametrize("change", [load, train, exchange])
@pytest.mark.parametrize("name", KINDS)
def test_evaluation_follows_the_weights(name, change):
    torch.manual_seed(0)
    model, image = MODELS.build(CASES[name]).eval(), torch.randn(1, 3, 75, 64)  # tables and kernels are resized
    with torch.no_grad():
        before = model(image)
        change(model)
        after = model.eval()(image)
        assert not torch.equal(after[-1], before[-1])
        assert all(map(torch.equal, after, copy.deepcopy(model)(image)))  # copies start with nothing kept
