"""Operators in half precision, far from ordinary magnitudes, and at zero."""

import pytest
import torch

from helpers.formulas import Calls
from mmlisa import ops

GRID = (9, 13)
# Operators that keep bf16
OPERATORS = {
    "focused_linear": lambda q, k, v, scale: ops.focused_linear(q, k, v, scale),
    "linear_angular": lambda q, k, v, scale: ops.linear_angular(q, k, v),
    "mila": lambda q, k, v, scale: ops.mila(q, k, v, GRID),
}


def tokens(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)]


def value_and_gradients(operator, inputs, dtype):
    *qkv, scale = (x.detach().to(dtype, copy=True).requires_grad_() for x in inputs)
    scale = scale if dtype == torch.float64 else scale.detach().float().requires_grad_()  # a parameter
    y = operator(*qkv, scale)
    y.backward(torch.ones_like(y) + torch.arange(y.shape[-1], dtype=y.dtype))
    return y, *(x.grad.double() for x in (*qkv, scale) if x.grad is not None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("magnitude", [1, 10])
@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients(name, magnitude, dtype):
    inputs = [magnitude * x.double() for x in tokens(2, 3, GRID[0] * GRID[1], 16, dtype=dtype)]
    inputs.append(torch.randn(3, 16, generator=torch.Generator().manual_seed(1)).double())
    expected = value_and_gradients(OPERATORS[name], inputs, torch.float64)
    found = value_and_gradients(OPERATORS[name], inputs, dtype)
    assert found[0].dtype == dtype
    for x, y in zip(found, expected, strict=True):
        # Each number passes a handful of roundings; a sum over tokens in bf16 would be wrong by tens of per cent.
        assert (x.double() - y).norm() < 4 * torch.finfo(dtype).eps * y.norm()


@pytest.mark.parametrize("name", OPERATORS)
def test_no_map_of_tokens_is_widened(name):
    inputs = tokens(1, 3, GRID[0] * GRID[1], 16, dtype=torch.bfloat16)
    with torch.no_grad(), Calls() as seen:
        OPERATORS[name](*inputs, torch.zeros(3, 16))
    wide = [y.numel() for _, _, y in seen.calls if isinstance(y, torch.Tensor) and y.dtype == torch.float32]
    assert max(wide) < inputs[0].numel() / 4  # angles, lengths and counts


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotary_counts_far_positions_in_any_precision(dtype):
    """bf16 has no 257. Each column of a wide map has an angle of its own."""
    x = torch.randn(1, 600, 4).to(dtype)
    expected = ops.rotary(x.double(), (1, 600))
    assert (ops.rotary(x, (1, 600)) - expected).norm() < torch.finfo(dtype).eps * expected.norm()


def assert_finite(operator, leaves):
    leaves = [x.detach().requires_grad_() for x in leaves]
    y = operator(*leaves)
    y.float().mean().backward()
    assert y.isfinite().all()
    assert all(t.grad.isfinite().all() for t in leaves)
    return y


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("p", [1, 3, 32])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_focused_attention_of_any_finite_input(dtype, p, sign):
    def focused(*qkv):
        return ops.focused_linear(*qkv, torch.ones(3, 8), focusing_factor=p)

    largest = torch.finfo(dtype).max / 64
    for size in (0.0, torch.finfo(dtype).tiny, 1e-3, 1.0, 1e3, largest):
        qkv = [((t.abs() * sign if sign else t) * size).clamp(-largest, largest).to(dtype) for t in tokens(2, 3, 20, 8)]
        assert focused(*qkv).isfinite().all(), size
        if size <= 1e3:
            assert_finite(focused, qkv)


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-6])
def test_angles_of_zero_and_constant_vectors(n, fill):
    qkv = [torch.full((1, 2, n, 4), fill) for _ in range(3)]
    assert_finite(lambda *qkv: ops.normalize_length(ops.linear_angular(*qkv)), qkv)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_polarity_aware_powers_of_any_size(scale):
    """Plain powers of 5 leave the range of fp32 at 5e7 and vanish at 1e-9; the quotient of two does neither."""
    power = torch.linspace(-9, 9, 24).view(3, 8)
    y = assert_finite(
        lambda q, k, v: ops.polarity_aware(q * scale * 1e5, k * scale * 1e5, v, power, torch.ones(3, 8)),
        tokens(2, 3, 45, 8),
    )
    assert y.std() > 0.1


def test_polarity_aware_tokens_of_one_sign():
    """No pair has opposite signs then, and epsilon over the powers is zero in fp32."""
    value = torch.randn(1, 2, 6, 4)
    assert_finite(
        lambda q: ops.polarity_aware(q, q, value, torch.full((2, 4), 9.0), torch.ones(2, 4)),
        [torch.full((1, 2, 6, 4), 1e4)],
    )
