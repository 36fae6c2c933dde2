"""The attentions of MILA, ViT³, PolaFormer, RALA, MALA, InLine and Agent on the tokens of a detector, in half precision."""

import pytest
import torch

from mmlisa.models.attention import build_attention

TYPES = ["MILA", "TTT", "PolarityAware", "RALA", "MALA", "InLine", "Agent"]


@pytest.mark.parametrize("name", TYPES)
def test_half_precision_is_finite_and_near(name):
    torch.manual_seed(0)
    operator, grid = build_attention(dict(type=f"{name}Attention"), 8, 2, (56, 56)), (100, 168)
    x = (10 * torch.randn(1, grid[0] * grid[1], 8)).requires_grad_()
    expected = operator(x, grid).detach()
    with torch.autocast("cpu", dtype=torch.float16):
        y = operator(x, grid)
    assert y.isfinite().all()
    error = (y.float() - expected).norm() / expected.norm()
    assert error < 0.03
    y.float().mean().backward()
    assert x.grad.isfinite().all()
