"""RoIAlign."""

import torch
import torchvision  # noqa: F401 (registers torch.ops.torchvision)
from torch import Tensor


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    size = (aligned_height, aligned_width)
    pooled = torch.ops.torchvision.roi_align(
        input.float(), rois.float(), spatial_scale, *size, sampling_ratio, aligned
    )
    output.copy_(pooled)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    size = (aligned_height, aligned_width)
    grad = torch.ops.torchvision._roi_align_backward(
        grad_output.float(), rois.float(), spatial_scale, *size, *grad_input.shape, sampling_ratio, aligned
    )
    grad_input.copy_(grad)
