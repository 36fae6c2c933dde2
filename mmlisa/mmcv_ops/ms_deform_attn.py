"""Multi-scale deformable attention (https://arxiv.org/abs/2010.04159) in the PyTorch form that mmcv uses on CPUs."""

import torch
from torch import Tensor

from mmlisa.ops.precision import widest


def ms_deform_attn_forward(*tensors: Tensor, im2col_step: int) -> Tensor:
    """Return the attended values; the tensors are value, shapes, level starts, sampling locations and weights."""
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as attend

    value, shapes, _, locations, weights = tensors
    wide, locations, weights = widest(value, locations, weights)
    return attend(wide, shapes, locations, weights).to(value.dtype)


def ms_deform_attn_backward(*tensors: Tensor, im2col_step: int) -> None:
    """Fill the gradients of value, sampling locations and weights, the last three tensors."""
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as attend

    value, shapes, _, locations, weights, grad_output, *targets = tensors
    grad_output, *inputs = widest(grad_output, value, locations, weights)
    pullback = torch.func.vjp(lambda value, *sampling: attend(value, shapes, *sampling), *inputs)[1]
    for target, gradient in zip(targets, pullback(grad_output), strict=True):
        target.copy_(gradient)
