"""Linear layers over the channels of tokens and of maps."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.ops.tokenwise import is_cpu_inference

# Below so many tokens, the preparation of the weights costs more than the faster product gains.
MIN_TOKENS = 256


class TokenLinear(nn.Linear):
    """``nn.Linear``: ``[..., C_in] -> [..., C_out]``, somewhat faster in inference on a CPU.

    PyTorch takes MKL for products of fp32 matrices and oneDNN for convolutions. oneDNN is the faster one on AMD's CPUs: many
    tokens go to it, as the pixels of a pointwise convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        is_mkl = is_cpu_inference(x) and x.dtype == torch.float32 and torch.backends.mkl.is_available()
        if not is_mkl or x.shape[:-1].numel() < MIN_TOKENS:
            return super().forward(x)
        pixels = x.reshape(1, 1, -1, x.shape[-1]).movedim(-1, 1)  # a map in channels-last memory
        y = F.conv2d(pixels, self.weight[:, :, None, None], self.bias)
        return y.movedim(1, -1).reshape(*x.shape[:-1], -1)


class ChannelLinear(TokenLinear, nn.Linear):
    """``nn.Linear`` over axis 1 (a pointwise convolution): ``[B, C_in, *grid] -> [B, C_out, *grid]``.

    On maps in channels-last memory the axis moves are views, so it costs what it costs on tokens. ``nn.Linear`` is among its own
    bases because MMEngine's ``init_cfg=dict(layer='Linear')`` looks no further.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)
