"""Non-maximum suppression: greedy, soft, with the suppressed boxes listed, and of lines."""

import torch
import torchvision.ops
from torch import Tensor

from mmlisa.mmcv_ops.bbox_overlaps import overlaps
from mmlisa.ops.precision import at_least_fp32

from .precision import widest


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Indices of the boxes ``[N, 4]`` that are kept, by falling score: no two overlap by more than the threshold.

    ``offset`` is 1 where x2 and y2 are the last pixels inside a box, else 0.
    """
    boxes, scores = widest(boxes, scores)
    if offset:
        boxes = torch.cat([boxes[:, :2], boxes[:, 2:] + offset], dim=1)
    return torchvision.ops.nms(boxes, scores, iou_threshold)


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
    """Soft-NMS (https://arxiv.org/abs/1704.04503): the more a box overlaps a better one, the lower its score becomes.

    Fills the head of ``dets`` ``[N, 5]`` with boxes and new scores, by falling score, and returns their indices. ``method``: 0
    greedy, 1 linear, 2 gaussian. Boxes below ``min_score`` are dropped.
    """
    index = torch.arange(len(boxes))
    boxes, scores = at_least_fp32(boxes), at_least_fp32(scores)
    kept = []
    while len(index):
        best = scores.argmax()
        dets[len(kept)] = torch.cat([boxes[best], scores[best, None]])
        kept.append(index[best])
        iou = overlaps(boxes[best], boxes, offset)
        if method == 2:
            scores = scores * torch.exp(-iou.square() / sigma)
        else:
            scores = torch.where(iou >= iou_threshold, scores * (1 - iou if method == 1 else 0), scores)
        rest = scores >= min_score
        rest[best] = False
        boxes, scores, index = boxes[rest], scores[rest], index[rest]
    return torch.stack(kept) if kept else index


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Greedy NMS of ``[N, 5]`` (box, score): a list per kept box of its index and those of the boxes that it suppresses."""
    dets = at_least_fp32(dets)
    order = dets[:, 4].sort(descending=True).indices
    groups = []
    while len(order):
        best, others = order[0], order[1:]
        suppressed = overlaps(dets[best, :4], dets[others, :4]) >= iou_threshold
        groups.append([int(best), *others[suppressed].tolist()])
        order = others[~suppressed]
    return groups


def line_nms_forward(boxes: Tensor, scores: Tensor, overlap: float, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Greedy NMS of lanes (https://arxiv.org/abs/2203.10350): drops a lane nearer than ``overlap`` to a better one on average.

    Args:
        boxes: ``[N, 5 + S + 1]``; 2 is where a lane starts, from 0 to 1, 4 its length in strips, 5 on x at each of S + 1 heights.
        scores: ``[N]``.
        overlap: in the unit of x.
        top_k: how many lanes to keep at most.

    Returns:
        The indices of the lanes that are kept, padded with zeros to ``[N]``; their number, ``[]``; and for each lane ``[N]`` the
        number, from 1, of the kept lane that stands for it, or 0.
    """
    x = at_least_fp32(boxes[:, 5:])
    strips = x.shape[1] - 1
    start = (boxes[:, 2] * strips + 0.5).long()
    end = (start + boxes[:, 4].long() - 1 + (0.5 - (boxes[:, 4] < 1).float()).long()).clamp(max=strips)
    height = torch.arange(strips + 1, device=boxes.device)
    order = scores.sort(descending=True).indices
    keep, parent = torch.zeros_like(order), torch.zeros_like(order)
    count = 0
    while len(order) and count < top_k:
        best, others = order[0], order[1:]
        first, last = torch.maximum(start[best], start[others]), torch.minimum(end[best], end[others])
        common = (height >= first[:, None]) & (height <= last[:, None])
        distance = ((x[best] - x[others]).abs() * common).sum(1)
        suppressed = (distance < overlap * (last - first + 1)) & (last >= first) & (first >= 0)
        keep[count] = best
        count += 1
        parent[best] = count
        parent[others[suppressed]] = count
        order = others[~suppressed]
    return keep, keep.new_tensor(count), parent
