"""Initial weights: every layer's standard deviation, by the formula and as in timm."""

import re
from collections import defaultdict
from math import prod, sqrt

import pytest
import torch
from torch import Tensor, nn

from helpers.backbones import CASES
from helpers.hosts import HOSTS, build
from mmlisa.models.backbones import CastlingLeViT, ESNet, FLattenPVTv2, LCNet, LiSANet, iViT
from mmlisa.registry import MODELS


def deviations(model: nn.Module) -> dict[torch.Size, float]:
    """Standard deviation of all weights of a shape; of those that are large enough to have one.

    Without the class token: DeiT's own code draws it as its positions, timm from 1e-6.
    """
    weights = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and parameter.numel() > 100 and not re.search("head|classifier|cls_token", name):
            weights[parameter.squeeze().shape].append(parameter.detach().flatten())
    return {shape: torch.cat(tensors).std().item() for shape, tensors in weights.items()}


@pytest.mark.parametrize("host", HOSTS)
def test_weights_start_as_timms(host):
    torch.manual_seed(0)
    ours, theirs = map(deviations, build(host))
    common = ours.keys() & theirs.keys()
    assert len(common) >= 0.8 * len(ours), sorted(ours.keys() ^ theirs.keys())
    for shape in common:  # timm's MViTv2 cuts its normal distribution off at two deviations, and loses 12%
        noise = 5 / sqrt(2 * prod(shape))
        assert ours[shape] == pytest.approx(theirs[shape], rel=0.15 + noise), shape


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
