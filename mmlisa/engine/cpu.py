"""Inference on CPUs, sped up from outside the models."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import StarReLU
from mmlisa.ops.chunks import is_cpu_inference

# With fewer tokens, preparing the weights costs more than the faster product saves.
MIN_TOKENS = 256


class PointwiseLinear(nn.Linear):
    """``nn.Linear`` computed as a pointwise convolution: ``[..., C_in] -> [..., C_out]``."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_cpu_inference(x) or x.dtype != torch.float32 or x.shape[:-1].numel() < MIN_TOKENS:
            return super().forward(x)
        pixels = x.reshape(1, 1, -1, x.shape[-1]).movedim(-1, 1)  # a map in channels-last memory
        y = F.conv2d(pixels, self.weight[:, :, None, None], self.bias)
        return y.movedim(1, -1).reshape(*x.shape[:-1], -1)


class TwoPassStarReLU(StarReLU):
    """``scale * relu(x)² + bias`` in two passes over memory instead of three: ``[..., C] -> [..., C]``."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_cpu_inference(x):
            return super().forward(x)
        x = x.relu()
        return torch.addcmul(self.bias.to(x.dtype), x, x, value=self.scale.item(), out=x)


_FASTER = {nn.Linear: PointwiseLinear, StarReLU: TwoPassStarReLU}


def optimize_for_cpu(model: nn.Module) -> nn.Module:
    """Makes layers of ``model`` faster for inference on a CPU; results change by rounding alone.

    PyTorch computes linear layers with MKL and convolutions with oneDNN. Where oneDNN's products are the faster ones, as on AMD's
    CPUs, linear layers gain as pointwise convolutions. Parameters, their names and hooks stay as they are.

    Returns:
        ``model`` itself.
    """
    for module in model.modules():
        module.__class__ = _FASTER.get(type(module), type(module))
    return model
