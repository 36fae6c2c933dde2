"""Demo models with random weights whose results differ from place to place, and an image for them."""

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmlisa.engine.config import load_config

SIZE = (150, 190)  # not square, not multiples of 32


def image() -> torch.Tensor:
    """``[1, 3, H, W]``, RGB, integers from 0 to 255."""
    coarse = torch.rand(1, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    return (nn.functional.interpolate(coarse, SIZE, mode="bicubic").clamp(0, 1) * 255).round()


def build(name: str) -> nn.Module:
    """A demo model whose heads have random biases, so that scores differ between classes and priors."""
    cfg = load_config(f"{name}_demo.py")
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    for parameter_name, parameter in model.named_parameters():
        if "head" in parameter_name and parameter_name.endswith("bias") and parameter.ndim == 1:
            nn.init.normal_(parameter, std=0.3)
    if name.startswith("picodet"):
        # With the statistics of a batch, its scores differ from place to place. Otherwise their order would be arbitrary.
        for norm in model.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.momentum = 1.0
        model.train().bbox_head(model.extract_feat(torch.cat([image(), image().flip(3)]) / 64 - 2))
    return model.eval()
