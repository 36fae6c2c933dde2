"""Operators that keep bf16: value and gradients beside those in fp64, at usual magnitudes and ten times as large."""

import pytest
import torch

from helpers.dispatch import Calls
from mmlisa import ops
from mmlisa.models.layers.blocks import StarReLU

GRID = (9, 13)
OPERATORS = {
    "focused_linear": lambda q, k, v, scale: ops.focused_linear(q, k, v, scale, focusing_factor=3),
    "linear_angular": lambda q, k, v, scale: ops.linear_angular(q, k, v),
    "mila": lambda q, k, v, scale: ops.mila(q, k, v, GRID),
}


def value_and_gradients(operator, inputs, dtype):
    q, k, v, scale = (x.detach().to(dtype, copy=True).requires_grad_() for x in inputs)
    scale = scale if dtype == torch.float64 else scale.detach().float().requires_grad_()  # a parameter
    y = operator(q, k, v, scale)
    y.backward(torch.ones_like(y) + torch.arange(y.shape[-1], dtype=y.dtype))
    gradients = [x.grad for x in (q, k, v, scale) if x.grad is not None]
    return y, *(g.double() for g in gradients)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("magnitude", [1, 10])
@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients(name, magnitude, dtype):
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randn(2, 3, GRID[0] * GRID[1], 16, generator=generator, dtype=torch.float64) for _ in range(3)]
    inputs = [magnitude * x.to(dtype).double() for x in tokens] + [torch.randn(3, 16, generator=generator).double()]
    expected = value_and_gradients(OPERATORS[name], inputs, torch.float64)
    found = value_and_gradients(OPERATORS[name], inputs, dtype)
    assert found[0].dtype == dtype
    for x, y in zip(found, expected, strict=True):
        # Each number passes a handful of roundings; a sum over tokens in bf16 would be wrong by tens of per cent.
        assert (x.double() - y).norm() < 4 * torch.finfo(dtype).eps * y.norm()


@pytest.mark.parametrize("name", OPERATORS)
def test_no_map_of_tokens_is_widened(name):
    inputs = [torch.randn(1, 3, GRID[0] * GRID[1], 16).bfloat16() for _ in range(3)]
    with torch.no_grad(), Calls() as seen:
        OPERATORS[name](*inputs, torch.zeros(3, 16))
    wide = [y.numel() for _, _, y in seen.calls if isinstance(y, torch.Tensor) and y.dtype == torch.float32]
    assert max(wide) < inputs[0].numel() / 4  # angles, lengths and counts


def test_star_relu_keeps_the_type_and_scales_before_it_squares():
    layer = StarReLU()
    torch.nn.init.constant_(layer.scale, 1e-3)
    x = torch.tensor([300.0, -1.0], dtype=torch.float16)  # 300² is beyond fp16
    torch.testing.assert_close(layer(x), torch.tensor([90.0, 0.0], dtype=torch.float16))
