"""Attention operators in the networks that take them."""

import pytest
import torch

from helpers.backbones import CASES
from mmlisa.registry import MODELS


@pytest.mark.parametrize("operator", ["TTTAttention", "AgentAttention"])
def test_a_class_token_is_refused_where_it_has_no_place(operator):
    with pytest.raises(ValueError, match=r"class tokens: .* 35 tokens .*, and got 36"):
        MODELS.build({**CASES["flatten-deit"], "attention": dict(type=operator)})(torch.randn(1, 3, 75, 107))


@pytest.mark.parametrize("case", ["ivit", "mila", "vit3", "castling-deit", "flatten-pvt"])
def test_the_convolution_of_enhanced_linear_attention(case):
    """Without it, the operator is plain ReLU attention."""
    network = MODELS.build({**CASES[case], "attention": dict(type="EnhancedLinearAttention")})
    mixers = {n for n, module in network.named_modules() if type(module).__name__ == "EnhancedLinearAttention"}
    convolutions = {n for n, _ in network.named_parameters() if n.endswith("mlp.dwconv.weight")}
    assert mixers
    assert {f"{name.rpartition('.')[0]}.mlp.dwconv.weight" for name in mixers} <= convolutions
