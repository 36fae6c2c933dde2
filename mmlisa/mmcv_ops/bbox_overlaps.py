"""Overlaps of boxes."""

import torch
from torch import Tensor


def overlaps(boxes_a: Tensor, boxes_b: Tensor, offset: int = 0, over_a: bool = False) -> Tensor:
    """Intersection over union (or over the area of ``boxes_a``) of boxes ``[…, 4]``, broadcast against each other: ``[…]``."""
    area_a, area_b = ((boxes[..., 2:] - boxes[..., :2] + offset).prod(-1) for boxes in (boxes_a, boxes_b))
    lower = torch.maximum(boxes_a[..., :2], boxes_b[..., :2])
    upper = torch.minimum(boxes_a[..., 2:], boxes_b[..., 2:])
    intersection = (upper - lower + offset).clamp(min=0).prod(-1)
    return intersection / (area_a if over_a else area_a + area_b - intersection)


def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int) -> None:
    """Fills ``ious``, ``[M]`` (aligned) or ``[M, N]``; mode 0 is IoU, 1 intersection over the area of ``bboxes1``."""
    ious.copy_(overlaps(bboxes1 if aligned else bboxes1[:, None], bboxes2, offset, over_a=mode == 1))
