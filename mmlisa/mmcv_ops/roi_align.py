"""RoIAlign (https://arxiv.org/abs/1703.06870) with the average of the sampling points.

Regions are ``[N, 5]``: the index of the image, then x1, y1, x2, y2 in pixels of the image. ``spatial_scale`` takes them to the
feature map ``[B, C, H, W]``. The result is ``[N, C, aligned_height, aligned_width]``.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torchvision  # noqa: F401 (registers torch.ops.torchvision)
from torch import Tensor

from mmlisa.ops.precision import widest

_MAX = 0  # pool_mode; 1 is the average


def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor, *_: Tensor, pool_mode: int, **geometry: Any) -> None:
    """Fill ``output``; the tensors behind it belong to the maximum.

    Raises:
        NotImplementedError: ``pool_mode`` is the maximum.
    """
    if pool_mode == _MAX:
        raise NotImplementedError("pool_mode='max' needs mmcv's compiled operators; use pool_mode='avg'")
    features, boxes = widest(input, rois)
    output.copy_(torch.ops.torchvision.roi_align(features, boxes, *_arguments(**geometry)))


def roi_align_backward(*tensors: Tensor, pool_mode: int, **geometry: Any) -> None:
    """Fill the gradient of the input, the last of the tensors."""
    grad_output, rois, _, _, grad_input = tensors
    arguments = _arguments(**geometry, shape=grad_input.shape)
    grad_input.copy_(torch.ops.torchvision._roi_align_backward(*widest(grad_output, rois), *arguments))


def _arguments(*, shape: Sequence[int] = (), **geometry: Any) -> list[Any]:
    """Return torchvision's arguments for those of mmcv; its backward pass takes the input's shape in their midst."""
    size = [geometry[name] for name in ("spatial_scale", "aligned_height", "aligned_width")]
    return [*size, *shape, geometry["sampling_ratio"], geometry["aligned"]]
