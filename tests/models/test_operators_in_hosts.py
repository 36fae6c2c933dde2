"""The attentions of MILA, ViT³, PolaFormer, RALA, MALA, InLine and Agent in every host that takes an attention."""

import pytest
import torch
from torch import nn

from helpers.backbones import CASES
from mmlisa.models import backbones
from mmlisa.registry import MODELS

OPERATORS = {
    "MILAAttention": {},
    "TTTAttention": {},
    "PolarityAwareAttention": {},
    "RALAAttention": {},
    "MALAAttention": {},
    "InLineAttention": {},
    "AgentAttention": dict(agents=9),
}
WITHOUT_CLASS_TOKEN = ("TTTAttention", "AgentAttention")
# All stages with the operator where a host has its own attention in some.
EVERYWHERE = dict(FLattenSwin=dict(attn_type="AAAA"), FLattenCSwin=dict(attn_type="AAAA"))
HOSTS = {
    case["type"]: case
    for case in reversed(CASES.values())
    if case["type"] not in ("LCNet", "ESNet") and not {"attention", "attn_type"} & case.keys()
}


def build(host: str, operator: str, **options) -> nn.Module:
    case = {**HOSTS[host], "attention": dict(type=operator, **OPERATORS[operator]), "drop_path_rate": 0, **options}
    kind = case.pop("type")
    return getattr(backbones, kind)(**{**EVERYWHERE.get(kind, {}), **case})


def test_every_host_is_here():
    with_attention = {cls for cls in backbones.__all__ if any("attention" in arch for arch in archs(cls).values())}
    assert HOSTS.keys() == with_attention


def archs(kind: str) -> dict[str, dict]:
    return getattr(backbones, kind).arch_settings


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("host", HOSTS)
def test_forward_and_backward_on_odd_grids(host, operator):
    """75x107 pixels: 19x27 tokens at stride 4, 5x7 at stride 16. Class tokens are refused where they have no place."""
    torch.manual_seed(0)
    model = build(host, operator).train()
    image = torch.randn(2, 3, 75, 107, requires_grad=True)
    if model.num_extra_tokens and operator in WITHOUT_CLASS_TOKEN:
        with pytest.raises(
            ValueError, match=r"^this attention has no place for class tokens: .* 35 tokens .*, and got 36; "
        ):
            model(image)
        return
    maps = model(image)
    assert all(m.isfinite().all() for m in maps)
    sum((m * torch.randn_like(m)).sum() for m in maps).backward()
    parameters = {
        f"{name}.{p}": parameter
        for name, module in model.named_modules()
        if type(module).__name__ == operator
        for p, parameter in module.named_parameters()
    }
    assert parameters
    assert all(p.grad is not None and p.grad.isfinite().all() for p in parameters.values())
    assert image.grad.abs().max() > 0


@pytest.mark.parametrize("case", ["ivit", "mila", "vit3", "castling-deit", "flatten-pvt"])
def test_the_convolution_of_enhanced_linear_attention(case):
    """Without it, the operator is plain ReLU attention."""
    attention = dict(type="EnhancedLinearAttention")
    network = MODELS.build({**CASES[case], "attention": attention})
    mixers = [name for name, module in network.named_modules() if type(module).__name__ == attention["type"]]
    convolutions = [name for name, _ in network.named_parameters() if name.endswith("mlp.dwconv.weight")]
    assert mixers
    assert {name.rpartition(".")[0] for name in mixers} <= {
        name.removesuffix(".mlp.dwconv.weight") for name in convolutions
    }
