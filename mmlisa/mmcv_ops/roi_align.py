"""RoIAlign (https://arxiv.org/abs/1703.06870) with the average of the sampling points.

Regions are ``[N, 5]``: the index of the image, then x1, y1, x2, y2 in pixels of the image. ``spatial_scale`` takes them to the
feature map ``[B, C, H, W]``. The result is ``[N, C, aligned_height, aligned_width]``.
"""

import torch
import torchvision  # noqa: F401 (registers torch.ops.torchvision)
from torch import Tensor

from .missing import missing_operator
from .precision import widest

_MAX = 0  # pool_mode; 1 is the average


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
    """Fill ``output``; ``argmax_*`` belong to the maximum.

    Raises:
        NotImplementedError: ``pool_mode`` is the maximum.
    """
    if pool_mode == _MAX:
        raise missing_operator("roi_align_forward(pool_mode='max')")
    features, boxes = widest(input, rois)
    size = (spatial_scale, aligned_height, aligned_width)
    output.copy_(torch.ops.torchvision.roi_align(features, boxes, *size, sampling_ratio, aligned))


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
    """Fill ``grad_input``."""
    grad, boxes = widest(grad_output, rois)
    size = (spatial_scale, aligned_height, aligned_width, *grad_input.shape)
    grad_input.copy_(torch.ops.torchvision._roi_align_backward(grad, boxes, *size, sampling_ratio, aligned))
