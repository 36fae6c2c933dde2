"""Results that are kept between calls, and for how long."""

import pytest
import torch
from torch import nn

from mmlisa.models.layers import GridCache, PositionResize


class Double:
    """A derivation that counts its calls."""

    def __init__(self):
        self.cache, self.calls = GridCache(), 0

    def __call__(self, parameter, key=(2, 2)):
        def derive():
            self.calls += 1
            return 2 * parameter

        y = self.cache.get(key, [parameter], derive)
        assert torch.equal(y, 2 * parameter)
        return y


@pytest.fixture
def parameter():
    return nn.Parameter(torch.randn(3, 4))


@torch.no_grad()
def test_keeps_the_last_two_grids(parameter):
    double = Double()
    for key, calls in (((2, 2), 1), ((3, 3), 2), ((2, 2), 2), ((4, 4), 3), ((2, 2), 3), ((3, 3), 4)):
        double(parameter, key)
        assert double.calls == calls


def test_gradients_flow_and_release_what_was_kept(parameter):
    double = Double()
    with torch.no_grad():
        double(parameter)
    double(parameter).sum().backward()
    assert torch.equal(parameter.grad, torch.full((3, 4), 2.0))
    with torch.no_grad():
        double(parameter)
    assert double.calls == 3


def test_kept_in_inference_mode_serves_a_gradient(parameter):
    """A frozen operator inside a trained network: its tokens need a gradient, its parameters do not."""
    double = Double()
    parameter.requires_grad_(False)
    with torch.inference_mode():
        double(parameter)
    x = torch.randn(3, 4, requires_grad=True)
    (x * double(parameter)).sum().backward()
    assert double.calls == 1


def loaded(parameter):
    module = nn.Module()
    module.p = parameter
    module.load_state_dict({"p": 0.97 * parameter})


@pytest.mark.parametrize(
    "change",
    [
        loaded,
        lambda p: p.data.mul_(0.97),  # as MMEngine's averages are updated
        lambda p: setattr(p, "data", 0.97 * p.data),  # as its EMAHook exchanges weights and averages
    ],
)
@torch.no_grad()
def test_changed_weights_are_noticed(parameter, change):
    double = Double()
    double(parameter)
    change(parameter)
    double(parameter)
    assert double.calls == 2
    for factor in (0.5, 2.0):  # a tensor at an address that was freed before
        double(factor * parameter)


@torch.no_grad()
def test_a_trace_keeps_no_constant():
    resize, table = PositionResize((4, 4)).eval(), torch.randn(1, 16, 8)
    resize(table, (6, 5))
    traced = torch.jit.trace(lambda t: resize(t, (6, 5)), table, check_trace=False)
    torch.testing.assert_close(traced(2 * table), resize(2 * table, (6, 5)))
