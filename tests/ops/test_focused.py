"""Focused linear attention: the linear form against its N x N reference, its numerics, its mask."""

import pytest
import torch
from torch import Tensor

from helpers.formulas import value_and_gradients
from mmlisa import ops


def inputs(n=20, dtype=torch.float64) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randn(2, 3, n, 8, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]
    return tokens, torch.randn(3, 8, generator=generator, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("p", [1, 2.5, 3, 8, 32])
def test_linear_form_equals_the_reference_with_a_mask(p):
    """tests/ops/test_references.py compares both with the formula."""
    (q, k, v), scale = inputs()
    options = dict(focusing_factor=p, mask=(torch.arange(20) % 3 > 0).expand(2, -1))
    leaves = (q, k, v, scale)
    found, expected = (ops.focused_linear(*leaves, backend=backend, **options) for backend in ("auto", "reference"))
    torch.testing.assert_close(value_and_gradients(found, leaves), value_and_gradients(expected, leaves))


@pytest.mark.parametrize("p", [1, 2.5, 3])
def test_gradients_of_gradients(p):
    (q, k, v), scale = inputs(n=3)
    leaves = [t[:1, :2, :, :3].detach().requires_grad_() for t in (q, k, v)] + [scale[:2, :3].detach().requires_grad_()]
    assert torch.autograd.gradgradcheck(lambda *x: ops.focused_linear(*x, focusing_factor=p), leaves, atol=1e-4)
    assert torch.autograd.gradgradcheck(lambda *x: ops.focused_linear(*x, focusing_factor=p), leaves[:3], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("p", [1, 3, 32])
def test_finite_for_any_finite_input(dtype, p):
    largest = torch.finfo(dtype).max / 64
    for size in (0.0, torch.finfo(dtype).tiny, 1e-3, 1.0, 1e3, largest):
        for sign in (-1, 0, 1):
            tokens = [torch.randn(2, 3, 20, 8) for _ in range(3)]
            tokens = [
                ((t.abs() if sign else t) * (sign or 1) * size).to(dtype).clamp(-largest, largest) for t in tokens
            ]
            tokens = [t.requires_grad_() for t in tokens]
            y = ops.focused_linear(*tokens, torch.randn(3, 8), focusing_factor=p)
            assert y.dtype == dtype
            assert y.isfinite().all(), (size, sign)
            if size <= 1e3:
                y.float().mean().backward()
                assert all(t.grad.isfinite().all() for t in tokens), (size, sign)


def test_masked_keys_count_for_nothing():
    (q, k, v), scale = inputs()
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[:, 15:] = False
    k_wild, v_wild = (torch.cat([t[:, :, :15], 1e4 * torch.randn_like(t[:, :, 15:])], 2) for t in (k, v))
    expected = ops.focused_linear(q[:, :, :15], k[:, :, :15], v[:, :, :15], scale)
    torch.testing.assert_close(ops.focused_linear(q, k_wild, v_wild, scale, mask=mask)[:, :, :15], expected)
    largest = k_wild * torch.where(mask, 1, 1e30)[:, None, :, None]
    torch.testing.assert_close(ops.focused_linear(q, largest, v_wild, scale, mask=mask)[:, :, :15], expected)
    for backend in ("auto", "reference"):
        assert not ops.focused_linear(q, k, v, scale, mask=torch.zeros_like(mask), backend=backend).any()


def test_bad_arguments():
    (q, k, v), scale = inputs()
    for name, arguments in (
        ("one shape", dict(key=k[:, :, :5])),
        ("scale", dict(scale=scale.mT)),
        ("mask", dict(mask=torch.ones(20, dtype=torch.bool))),
        ("focusing_factor", dict(focusing_factor=0)),
    ):
        with pytest.raises(ValueError, match=name):
            ops.focused_linear(**{"query": q, "key": k, "value": v, **arguments})
