"""CARAFE (https://arxiv.org/abs/1905.02188): upsampling in which every pixel has a kernel of its own.

``features`` are ``[B, C, H, W]`` in G groups of channels, ``masks`` ``[B, G * K * K, s * H, s * W]``, the result
``[B, C, s * H, s * W]``.
"""

import torch
from torch import Tensor
from torch.nn.functional import unfold

from mmlisa.ops.precision import no_autocast

from .precision import widest


def carafe(features: Tensor, masks: Tensor, kernel_size: int, group_size: int, scale_factor: int) -> Tensor:
    """Each pixel of the result is the sum of its source's K x K window times its own kernel."""
    batch, channels, height, width = features.shape
    windows = unfold(features, kernel_size, padding=kernel_size // 2)
    windows = windows.view(batch, group_size, channels // group_size, kernel_size**2, height, width)
    kernels = masks.view(batch, group_size, kernel_size**2, height, scale_factor, width, scale_factor)
    upsampled = torch.einsum("bgckhw,bgkhiwj->bgchiwj", windows, kernels)
    return upsampled.reshape(batch, channels, height * scale_factor, width * scale_factor)


def carafe_naive_forward(
    features: Tensor, masks: Tensor, output: Tensor, kernel_size: int, group_size: int, scale_factor: int
) -> None:
    with no_autocast(features.device):
        output.copy_(carafe(*widest(features, masks), kernel_size, group_size, scale_factor))


def carafe_naive_backward(
    top_grad: Tensor,
    features: Tensor,
    masks: Tensor,
    bottom_grad: Tensor,
    mask_grad: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    grad, *inputs = widest(top_grad, features, masks)
    pullback = torch.func.vjp(lambda *inputs: carafe(*inputs, kernel_size, group_size, scale_factor), *inputs)[1]
    for target, value in zip((bottom_grad, mask_grad), pullback(grad), strict=True):
        target.copy_(value)


def carafe_forward(
    features: Tensor,
    masks: Tensor,
    rfeatures: Tensor,
    routput: Tensor,
    rmasks: Tensor,
    output: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    """``r…`` are buffers; the backward, which gets no features, is handed the first."""
    rfeatures.copy_(features)
    carafe_naive_forward(features, masks, output, kernel_size, group_size, scale_factor)


def carafe_backward(
    top_grad: Tensor,
    rfeatures: Tensor,
    masks: Tensor,
    rtop_grad: Tensor,
    rbottom_grad_hs: Tensor,
    rbottom_grad: Tensor,
    rmask_grad: Tensor,
    bottom_grad: Tensor,
    mask_grad: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    carafe_naive_backward(top_grad, rfeatures, masks, bottom_grad, mask_grad, kernel_size, group_size, scale_factor)
