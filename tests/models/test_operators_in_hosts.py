"""Attention operators in the networks that take them."""

import pytest
import torch
from torch import nn

from helpers.backbones import CASES
from mmlisa.models import backbones
from mmlisa.registry import MODELS

NEWER = ("MILA", "TTT", "PolarityAware", "RALA", "MALA", "InLine", "Agent")
# All stages with the operator where a host has its own attention in some.
EVERYWHERE = dict(FLattenSwin=dict(attn_type="AAAA"), FLattenCSwin=dict(attn_type="AAAA"))
HOSTS = {
    case["type"]: case
    for case in reversed(CASES.values())
    if case["type"] not in ("LCNet", "ESNet") and not {"attention", "attn_type"} & case.keys()
}


def build(host: str, operator: str, **options) -> nn.Module:
    case = {**HOSTS[host], "attention": dict(type=operator), "drop_path_rate": 0, **options}
    kind = case.pop("type")
    return getattr(backbones, kind)(**{**EVERYWHERE.get(kind, {}), **case})


@pytest.mark.parametrize(
    ("host", "operator"),
    [*((host, "MALAAttention") for host in HOSTS), *(("iViT", f"{name}Attention") for name in NEWER)],
)
def test_forward_and_backward_on_odd_grids(host, operator):
    """75x107 pixels: 19x27 tokens at stride 4, 5x7 at stride 16."""
    torch.manual_seed(0)
    model = build(host, operator).train()
    image = torch.randn(2, 3, 75, 107, requires_grad=True)
    maps = model(image)
    sum((m * torch.randn_like(m)).sum() for m in maps).backward()
    operators = [module for module in model.modules() if type(module).__name__ == operator]
    assert operators
    assert all(p.grad is not None and p.grad.isfinite().all() for module in operators for p in module.parameters())
    assert image.grad.abs().max() > 0


@pytest.mark.parametrize("operator", ["TTTAttention", "AgentAttention"])
def test_a_class_token_is_refused_where_it_has_no_place(operator):
    with pytest.raises(ValueError, match=r"class tokens: .* 35 tokens .*, and got 36"):
        build("FLattenDeiT", operator)(torch.randn(1, 3, 75, 107))


@pytest.mark.parametrize("case", ["ivit", "mila", "vit3", "castling-deit", "flatten-pvt"])
def test_the_convolution_of_enhanced_linear_attention(case):
    """Without it, the operator is plain ReLU attention."""
    network = MODELS.build({**CASES[case], "attention": dict(type="EnhancedLinearAttention")})
    mixers = {n for n, module in network.named_modules() if type(module).__name__ == "EnhancedLinearAttention"}
    convolutions = {n for n, _ in network.named_parameters() if n.endswith("mlp.dwconv.weight")}
    assert mixers
    assert {f"{name.rpartition('.')[0]}.mlp.dwconv.weight" for name in mixers} <= convolutions
