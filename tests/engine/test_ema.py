"""PicoDet's average against PaddleDetection's own formula."""

import pytest
import torch
from torch import nn

from mmlisa.engine.ema import ThresholdEMA


def test_average_is_the_bias_corrected_one_from_zeros():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    averaged = ThresholdEMA(model, decay=0.75)  # cut off from the 27th step on
    total, bias = 0.0, 1.0
    for t in range(40):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        averaged.update_parameters(model)
        decay = min(0.75, (1 + t) / (10 + t))
        total, bias = decay * total + (1 - decay) * model.weight.detach(), bias * decay
        torch.testing.assert_close(
            averaged.module.weight.detach(), total / (1 - bias), rtol=1e-2 if t > 25 else 1e-12, atol=0
        )


def test_momentum_ends_where_paddledetections_does():
    averaged = ThresholdEMA(nn.Linear(1, 1))
    assert averaged.momentum(0) == 1
    assert averaged.momentum(3664) == pytest.approx(0.00245, rel=1e-3)
    assert averaged.momentum(10**6) == pytest.approx(2e-4)
    with pytest.raises(ValueError, match="decay=1"):
        ThresholdEMA(nn.Linear(1, 1), decay=1)


def test_an_interval_counts_what_was_averaged():
    """Every third weights alone, as if there were no others."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    averaged, sparse = ThresholdEMA(model), ThresholdEMA(model, interval=3)
    for t in range(10):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        sparse.update_parameters(model)
        if t % 3 == 0:
            averaged.update_parameters(model)
    torch.testing.assert_close(sparse.module.state_dict(), averaged.module.state_dict())
