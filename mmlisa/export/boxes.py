"""Boxes ``[N, 4]`` (x1, y1, x2, y2 in pixels): decoding, ranking and suppression, and the parts that all detectors share."""

from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
import torchvision.ops
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.ops.context import is_traced

Boxes = tuple[Tensor, Tensor, Tensor]  # boxes [N, 4], scores [N], labels [N]
# cut(x, exact=False) marks a value to compare and returns the value to go on with, see EndToEnd.predict.
Cut = Callable[..., Tensor]
# The score of a candidate that only fills up a level with fewer than `nms_pre` candidates.
NOTHING = -1.0
# Methods by which heads predict.
_METHODS = {
    *("predict_by_feat", "_predict_by_feat_single", "_bbox_post_process", "regress_by_class"),
    *("predict_bbox", "predict_mask", "_bbox_forward", "_mask_forward"),
}


def predictor(module: Any, methods: Set[str] = _METHODS) -> str:
    """Return the name of the most derived class of a module that defines one of the methods by which heads predict."""
    return next((kind.__name__ for kind in type(module).__mro__ if vars(kind).keys() & methods), "")


def stages_of(modules: nn.Module) -> Sequence[nn.Module]:
    """Return the modules of a cascade's stages, or the only one."""
    return modules if isinstance(modules, nn.ModuleList) else [modules]


def rows_of(maps: Tensor, channels: int) -> Tensor:
    """``[1, A C, H, W] -> [H W A, C]``."""
    # Not reshape(-1, channels): PyTorch would divide a symbolic number of elements.
    return maps[0].unflatten(0, (-1, channels)).permute(2, 3, 0, 1).flatten(0, 2)


def clip_boxes(boxes: Tensor, limits: Tensor) -> Tensor:
    """Clip boxes to an image, ``limits`` being its (W, H, W, H)."""
    return torch.minimum(boxes.clamp(min=0), limits)


def decode_boxes(coder: Any, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    """Decode predictions ``[N, 4]`` by the library's coder; the borders are tensors, which the coder does not take."""
    torch._check(priors.shape[0] > 0)  # coders return early without boxes; the graph computes the same for none
    boxes = coder.decode(priors, prediction)
    return clip_boxes(boxes, limits) if getattr(coder, "clip_border", False) else boxes


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` highest of scores ``[N]`` and their indices, best first, of equal scores the lower index first.

    ONNX's TopK has this order. PyTorch's leaves the order of equal scores open; it is recorded, but never run.
    """
    if is_traced():
        return scores.topk(count)
    best, index = scores.sort(descending=True, stable=True)
    return best[:count], index[:count]


def nms(candidates: tuple[Tensor, ...], cfg: Any, threshold: Tensor | float) -> tuple[Tensor, ...]:
    """Drop candidates (:data:`Boxes`, …) up to ``threshold`` and those that overlap a better one of their label; best first.

    Raises:
        UserError: another kind of suppression than plain NMS.
    """
    options = dict(cfg["nms"])
    if options.pop("type", "nms") != "nms" or options.keys() - {"iou_threshold", "class_agnostic"}:
        raise UserError(f"nms={dict(cfg['nms'])} cannot be exported; only dict(type='nms', iou_threshold=…)")
    boxes, scores, *_ = candidates
    wanted = scores > threshold
    if cfg.get("min_bbox_size", -1) >= 0:
        wanted &= (boxes[:, 2:] - boxes[:, :2] > cfg["min_bbox_size"]).all(dim=1)
    boxes, scores, labels, *_ = candidates = take(candidates, wanted.nonzero()[:, 0])
    if options.get("class_agnostic"):
        apart = boxes
    else:  # boxes of different labels are moved where they cannot overlap
        extent = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1
        apart = boxes + (labels.to(boxes.dtype) * extent)[:, None]
    best = torchvision.ops.nms(apart, scores, options["iou_threshold"])
    if cfg.get("max_per_img", -1) > 0:
        best = best[: cfg["max_per_img"]]
    return take(candidates, best)


def take(candidates: tuple[Tensor, ...], index: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor[index] for tensor in candidates)
