"""Focused linear attention: its powers, its mask; test_references.py compares it with the formula."""

import pytest
import torch
from torch import Tensor

from helpers.formulas import value_and_gradients
from mmlisa import ops


def inputs(batch=2, heads=3, n=20, d=8) -> tuple[list[Tensor], Tensor]:
    generator, shape = torch.Generator().manual_seed(0), (batch, heads, n, d)
    tokens = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]
    return tokens, torch.randn(heads, d, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("p", [1, 2.5, 3, 8, 32])
def test_linear_form_equals_the_reference_with_a_mask(p):
    (q, k, v), scale = inputs()
    options = dict(focusing_factor=p, mask=(torch.arange(20) % 3 > 0).expand(2, -1))
    leaves = (q, k, v, scale)
    found, expected = (ops.focused_linear(*leaves, backend=backend, **options) for backend in ("auto", "reference"))
    torch.testing.assert_close(value_and_gradients(found, leaves), value_and_gradients(expected, leaves))


@pytest.mark.parametrize("p", [1, 2.5, 3])
def test_gradients_of_gradients(p):
    tokens, scale = inputs(1, 2, 3, 3)
    for leaves in (tokens, [*tokens, scale]):
        assert torch.autograd.gradgradcheck(lambda *x: ops.focused_linear(*x, focusing_factor=p), leaves, atol=1e-4)


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
