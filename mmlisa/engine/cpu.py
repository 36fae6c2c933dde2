"""Inference on CPUs, sped up from outside the models."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# With fewer tokens, preparing the weights costs more than the faster product saves.
MIN_TOKENS = 256


class PointwiseLinear(nn.Linear):
    """``nn.Linear`` computed as a pointwise convolution: ``[..., C_in] -> [..., C_out]``."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_grad_enabled():
            return super().forward(x)
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or x.shape[:-1].numel() < MIN_TOKENS:
            return super().forward(x)
        pixels = x.reshape(1, 1, -1, x.shape[-1]).movedim(-1, 1)  # a map in channels-last memory
        y = F.conv2d(pixels, self.weight[:, :, None, None], self.bias)
        return y.movedim(1, -1).reshape(*x.shape[:-1], -1)


def optimize_for_cpu(model: nn.Module) -> nn.Module:
    """Makes the linear layers of ``model`` faster for inference on a CPU; results change by rounding alone.

    PyTorch computes linear layers with MKL and convolutions with oneDNN. Where oneDNN's products are the faster ones, as on AMD's
    CPUs, linear layers gain as pointwise convolutions. Parameters, their names and hooks stay as they are.

    Returns:
        ``model`` itself.
    """
    if torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = PointwiseLinear
    return model
