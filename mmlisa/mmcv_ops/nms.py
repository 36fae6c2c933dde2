"""Non-maximum suppression, greedy and soft. Boxes are ``[N, 4]``: x1, y1, x2, y2.

``offset`` is 1 if x2 and y2 are the last pixels inside a box, otherwise 0.
"""

import torch
import torchvision.ops
from torch import Tensor

from mmlisa.ops.precision import widest


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the kept boxes by falling score; no two of them overlap by more than the threshold."""
    boxes, scores = widest(boxes, scores)
    return torchvision.ops.nms(_closed(boxes, offset), scores, iou_threshold)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Soft-NMS (https://arxiv.org/abs/1704.04503): lowers the score of a box by its overlap with better boxes.

    Fills the head of ``dets`` ``[N, 5]`` with boxes and new scores, by falling score, and returns their indices. ``method`` is 0
    (greedy), 1 (linear) or 2 (gaussian). Boxes below ``min_score`` are dropped.
    """
    boxes, scores = widest(boxes, scores)
    index, kept = torch.arange(len(boxes)), []
    while len(index):
        best = scores.argmax()
        dets[len(kept)] = torch.cat([boxes[best], scores[best, None]])
        kept.append(index[best])
        iou = torchvision.ops.box_iou(_closed(boxes[best, None], offset), _closed(boxes, offset))[0]
        if method == 2:
            scores = scores * torch.exp(-iou.square() / sigma)
        else:
            scores = torch.where(iou >= iou_threshold, scores * (1 - iou if method == 1 else 0), scores)
        rest = scores >= min_score
        rest[best] = False
        boxes, scores, index = boxes[rest], scores[rest], index[rest]
    return torch.stack(kept) if kept else index


def _closed(boxes: Tensor, offset: int) -> Tensor:
    """Return boxes whose x2 and y2 are the first pixels outside."""
    return boxes + boxes.new_tensor([0, 0, offset, offset])
