"""Non-maximum suppression."""

import torch
from torch import Tensor
from torchvision.ops import nms as torchvision_nms


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Indices of the boxes that are kept, by falling score.

    Args:
        boxes: ``[N, 4]``, x1, y1, x2, y2.
        scores: ``[N]``.
        iou_threshold: boxes whose IoU with a better one is above it are dropped.
        offset: 1 where x2 and y2 are the last pixels inside a box, else 0.
    """
    boxes = torch.cat([boxes[:, :2], boxes[:, 2:] + offset], dim=1) if offset else boxes
    return torchvision_nms(boxes.float(), scores.float(), iou_threshold)
