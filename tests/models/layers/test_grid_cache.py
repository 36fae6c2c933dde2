"""What is kept between calls, what is not, and for how long."""

import copy
import pickle

import numpy as np
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
def double():
    return Double()


@pytest.fixture
def parameter():
    return nn.Parameter(torch.randn(3, 4))


@torch.no_grad()
def test_keeps_the_last_two_grids(double, parameter):
    double(parameter)
    double(parameter, (3, 3))
    double(parameter)
    assert double.calls == 2
    double(parameter, (4, 4))
    double(parameter)
    assert double.calls == 3
    assert len(double.cache) == 2
    double(parameter, (3, 3))
    assert double.calls == 4


@torch.no_grad()
def test_equal_values_elsewhere_are_served(double, parameter):
    double(parameter)
    double(parameter.detach().clone())
    assert double.calls == 1


def test_same_address_and_version_with_other_values(double):
    memory = np.ones(6, dtype=np.float32)
    first = torch.from_numpy(memory)
    double(first)
    state = first.data_ptr(), first._version
    memory *= 3
    second = torch.from_numpy(memory)
    assert (second.data_ptr(), second._version) == state
    double(second)
    assert double.calls == 2


@torch.no_grad()
def test_another_dtype_is_another_value(double):
    x = torch.ones(3)
    double(x)
    assert double(x.double()).dtype == torch.float64


def test_gradients_flow_and_release_what_was_kept(double, parameter):
    with torch.no_grad():
        double(parameter)
    double(parameter).sum().backward()
    assert torch.equal(parameter.grad, torch.full((3, 4), 2.0))
    assert not len(double.cache)


def test_frozen_parameters_are_kept_where_gradients_flow(double, parameter):
    parameter.requires_grad_(False)
    double(parameter)
    double(parameter)
    assert double.calls == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("write", [lambda y: y.zero_(), lambda y: y.data.zero_(), lambda y: y.numpy().fill(0)])
def test_what_a_caller_overwrites_is_not_served_again(double, parameter, mode, write):
    with mode():
        write(double(parameter))
        write(double(parameter))
        assert torch.equal(double(parameter), 2 * parameter)
    assert double.calls == 1


def test_an_in_place_hook_on_the_position_resize_spoils_no_later_call():
    resize, table = PositionResize((4, 4)).eval(), torch.randn(1, 16, 8)
    expected = resize(table, (6, 5))
    with torch.no_grad(), resize.register_forward_hook(lambda module, inputs, output: output.zero_()):
        assert not resize(table, (6, 5)).any()
        assert not resize(table, (6, 5)).any()
    with torch.no_grad():
        torch.testing.assert_close(resize(table, (6, 5)), expected)
    assert expected.abs().max() > 0.1


def test_kept_in_inference_mode_serves_a_gradient(double, parameter):
    parameter.requires_grad_(False)
    with torch.inference_mode():
        double(parameter)
    x = torch.randn(3, 4, requires_grad=True)
    (x * double(parameter)).sum().backward()
    assert double.calls == 1


def test_several_tensors_kept_in_inference_mode_serve_a_gradient(parameter):
    """They are handed out as they are kept: no copy makes ordinary tensors of them."""
    cache, frozen = GridCache(), parameter.detach()
    with torch.inference_mode():
        cache.get((2, 2), [frozen], lambda: (2 * frozen, 3 * frozen))
    x = torch.randn(3, 4, requires_grad=True)
    twice, thrice = cache.get((2, 2), [frozen], lambda: pytest.fail("it is kept"))
    (x * twice * thrice).sum().backward()
    torch.testing.assert_close(x.grad, 6 * frozen**2)


def test_inference_weights(double):
    with torch.inference_mode():
        x = torch.ones(3)
        double(x)
        x.mul_(2)
        double(x)
    double(x)
    assert double.calls == 2


def test_transforms_and_tangents_pass_through(double, parameter):
    batch = torch.randn(5, 3, 4)
    double_each = torch.func.vmap(lambda p: double.cache.get((2, 2), [p], lambda: 2 * p))
    assert torch.equal(double_each(batch), 2 * batch)
    _, tangent = torch.func.jvp(lambda p: double.cache.get((2, 2), [p], lambda: 2 * p), (batch,), (batch,))
    assert torch.equal(tangent, 2 * batch)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        double(parameter)
        dual = torch.autograd.forward_ad.make_dual(parameter.detach(), torch.ones(3, 4))
        y = double.cache.get((2, 2), [dual], lambda: 2 * dual)
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(y).tangent, torch.full((3, 4), 2.0))


def test_nothing_is_kept_off_the_cpu():
    """Comparing would wait for the device."""
    cache, x = GridCache(), torch.empty(3, device="meta")
    cache.get((2, 2), [x], lambda: x)
    assert not len(cache)


@torch.no_grad()
def test_copies_and_pickles_start_empty(double, parameter):
    double(parameter)
    for cache in (copy.copy(double.cache), copy.deepcopy(double.cache), pickle.loads(pickle.dumps(double.cache))):
        assert not len(cache)
    assert len(double.cache)


@torch.no_grad()
def test_a_trace_keeps_no_constant():
    resize, table = PositionResize((4, 4)).eval(), torch.randn(1, 16, 8)
    resize(table, (6, 5))
    traced = torch.jit.trace(lambda t: resize(t, (6, 5)), table, check_trace=False)
    torch.testing.assert_close(traced(2 * table), resize(2 * table, (6, 5)))
