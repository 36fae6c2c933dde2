"""Multi-scale deformable attention (https://arxiv.org/abs/2010.04159) in the PyTorch form that mmcv uses on CPUs."""

import torch
from torch import Tensor

from .precision import widest


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as attend

    wide, locations, weights = widest(value, sampling_locations, attention_weights)
    return attend(wide, value_spatial_shapes, locations, weights).to(value.dtype)


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as attend

    def attend_at_levels(value: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
        return attend(value, value_spatial_shapes, locations, weights)

    grad, *inputs = widest(grad_output, value, sampling_locations, attention_weights)
    grads = torch.func.vjp(attend_at_levels, *inputs)[1](grad)
    for target, value in zip((grad_value, grad_sampling_loc, grad_attn_weight), grads, strict=True):
        target.copy_(value)
