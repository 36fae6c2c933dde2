"""Activations that timm lacks."""

import torch
from torch import Tensor, nn

from mmlisa import ops


class StarReLU(nn.Module):
    """``scale * relu(x)² + bias`` with a learned scale and bias (MetaFormer baselines, Sec. 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return ops.star_relu(x, self.scale, self.bias)
