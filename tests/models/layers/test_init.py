"""Initial weights: every layer's standard deviation, by the formula and as in timm."""

from math import prod, sqrt

import pytest
import torch
from torch import Tensor, nn

from helpers.backbones import CASES
from mmlisa.models.backbones import CastlingLeViT, ESNet, FLattenPVTv2, LCNet, LiSANet, iViT
from mmlisa.registry import MODELS

# Hosts whose convolutions start by their fan-out, the mobile ones and those after PVTv2, and whose layers all start alike.
BY_FAN_OUT = (LiSANet, LCNet, ESNet, FLattenPVTv2)


def expected_deviation(model: nn.Module, name: str, module: nn.Module, parameter: Tensor) -> float | None:
    """Linear layers at 0.02 and convolutions as PyTorch has them, unless the host's own code differs."""
    if isinstance(module, nn.Conv2d | nn.Conv3d | nn.Linear):
        if isinstance(model, iViT):
            return 0.02
        if isinstance(module, nn.Linear) and not isinstance(model, CastlingLeViT):
            return 0.02
        if not isinstance(model, BY_FAN_OUT):
            return 1 / sqrt(3 * parameter[0].numel())
        return sqrt(2 / (module.out_channels // module.groups * prod(module.kernel_size)))
    if name.startswith("kernel_") and isinstance(module.norm, nn.Identity):
        return prod(parameter.shape[parameter.ndim - 2 :]) ** -0.5
    return 0.0 if name in ("bias_a", "scale", "positional_encoding", "attention_biases") else 0.02


@pytest.mark.parametrize("case", CASES)
def test_weights_start_by_formula(case):
    torch.manual_seed(0)
    model = MODELS.build(CASES[case])
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1 and parameter.numel() > 100 and not name.startswith("mix_"):
                expected = expected_deviation(model, name, module, parameter)
                noise = 5 / sqrt(2 * parameter.numel())
                assert parameter.std().item() == pytest.approx(expected, rel=0.02 + noise), f"{path}.{name}"
                assert abs(parameter.mean()) <= 5 * expected / sqrt(parameter.numel()), f"{path}.{name}"
            if name == "bias" and isinstance(module, nn.Linear) and not isinstance(model, CastlingLeViT):
                assert not parameter.any(), f"{path}.{name}"
