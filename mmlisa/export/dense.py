"""Heads that predict on maps: their candidates are ranked, decoded and suppressed."""

from collections.abc import Sequence
from typing import Any

import torch
import torchvision.ops
from torch import Tensor, nn

from .boxes import NOTHING, Boxes, clip_boxes, decode_boxes, nms, predictor, rows_of, take


def dense_candidates(head: nn.Module, outputs: Sequence[Any], limits: Tensor, cfg: Any) -> tuple[Tensor, ...]:
    """The best ``nms_pre`` candidates of each level of a head's outputs, decoded, and the number of each one's prior.

    A candidate is a pair of a prior and a class. PicoDet and PAA rank priors, and keep all classes of the best ones. The labels
    of region proposals are the numbers of their levels.
    """
    scores, predictions, *factors = outputs
    kind, before = predictor(head), 0
    keeps_priors = kind in ("PicoHead", "PAAHead")
    if kind == "PicoHead":
        predictions = head.to_distances(predictions)
    priors = head.prior_generator.grid_priors([s.shape[2:] for s in scores], scores[0].dtype, scores[0].device)
    found = []
    for level, (score, prediction, prior) in enumerate(zip(scores, predictions, priors, strict=True)):
        score = rows_of(score, head.cls_out_channels)
        if kind != "TOODHead":  # TOOD's are probabilities
            score = score.sigmoid() if head.use_sigmoid_cls else score.softmax(dim=1)[:, :-1]
        classes = score.shape[1]
        factor = rows_of(factors[0][level], 1).sigmoid() if factors else None
        if keeps_priors:
            score = score if factor is None else (score * factor).sqrt()
            best, row = _top(score.amax(dim=1), cfg.get("nms_pre", -1))
            best = torch.where(best[:, None] == NOTHING, NOTHING, score[row]).flatten()
            index = (row[:, None] * classes + torch.arange(classes)).flatten()
        else:
            best, index = _top(score.flatten(), cfg.get("nms_pre", -1))
        row = index // classes
        # The threshold applies to the score without its factor.
        scaled = best if factor is None or keeps_priors else best * factor[row, 0]
        best = torch.where(best > cfg.get("score_thr", NOTHING), scaled, NOTHING)
        prediction = rows_of(prediction, 4 * (head.reg_max + 1) if kind == "GFLHead" else 4)[row]
        boxes = _decode_level(head, kind, level, prior[row], prediction, limits)
        labels = torch.full_like(index, level) if kind == "RPNHead" else index % classes
        found.append((boxes, best, labels, before + row))
        before = before + prior.shape[0]
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _decode_level(head: nn.Module, kind: str, level: int, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    """Boxes ``[N, 4]`` of one level, as the class ``kind`` decodes them in MMDetection."""
    # Not infinity: PyTorch's converter fails on a clamp between an integer and a float.
    stride, unlimited = head.prior_generator.strides[level], (10**9, 10**9)
    stride = stride[0] if isinstance(stride, tuple) else stride
    if kind == "TOODHead":
        return prediction * stride
    if kind == "FoveaHead":
        edge = head.base_edge_list[level]
        return clip_boxes(head._bbox_decode(priors, prediction, edge, unlimited), limits - 1)
    if kind == "RepPointsHead":
        return clip_boxes(head._bbox_decode(priors, prediction, stride, unlimited), limits)
    if kind == "GFLHead":
        bins = torch.arange(head.reg_max + 1, dtype=prediction.dtype)
        prediction = (prediction.unflatten(1, (4, -1)).softmax(dim=2) * bins).sum(dim=2) * stride
        priors = head.anchor_center(priors)
    elif kind == "PicoHead":
        priors = priors[:, :2]
    return decode_boxes(head.bbox_coder, priors, prediction, limits)


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest scores and their indices, all of them for -1; too few are filled up with index 0."""
    if count <= 0:
        return scores, torch.arange(scores.shape[0])
    best, index = torch.cat([scores, scores.new_full((count,), NOTHING)]).topk(count)
    return best, torch.where(best == NOTHING, 0, index)


def single_stage(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """RetinaNet, RTMDet, PicoDet and others whose head predicts like MMDetection's base class."""
    head = model.bbox_head
    cfg = head.test_cfg
    *candidates, _ = dense_candidates(head, head(model.extract_feat(image)), limits, cfg)
    if predictor(head) != "PAAHead":
        return nms(candidates, cfg, NOTHING)
    # PAA ignores min_bbox_size.
    found = nms(candidates, dict(nms=cfg["nms"], max_per_img=cfg["max_per_img"]), cfg["score_thr"])
    return vote(found, candidates, cfg["score_thr"]) if head.with_score_voting else found


def vote(found: Boxes, candidates: Boxes, threshold: float) -> Boxes:
    """Replace each box by the mean of the candidates of its label, weighted by score and overlap (PAA, section 3.3)."""
    boxes, scores, labels = take(candidates, (candidates[1] > threshold).nonzero()[:, 0])
    overlap = torchvision.ops.box_iou(found[0], boxes)
    counts = (overlap > 0.01) & (labels == found[2][:, None])
    weight = torch.where(counts, (-((1 - overlap) ** 2) / 0.025).exp() * scores, 0)
    return weight @ boxes / weight.sum(dim=1, keepdim=True), *found[1:]


def rtmdet_ins(model: nn.Module, image: Tensor, limits: Tensor) -> tuple[Tensor, ...]:
    """RTMDet-Ins: boxes as RTMDet's, and logits ``[N, h, w]`` of masks of the padded image, at the stride of the first level.

    Each detection has a small network of its own, which looks at the prototypes and its distances from the prior.
    """
    head, cfg = model.bbox_head, model.bbox_head.test_cfg
    scores, predictions, kernels, prototypes = head(model.extract_feat(image))
    *found, index = nms(dense_candidates(head, (scores, predictions), limits, cfg), cfg, NOTHING)
    generator, device = head.prior_generator, image.device
    priors = torch.cat(generator.grid_priors([s.shape[2:] for s in scores], device=device, with_stride=True))[index]
    places = generator.single_level_grid_priors(prototypes.shape[2:], level_idx=0, device=device)
    away = (priors[:, None, :2] - places) / (priors[:, None, 2:] * 8)
    x = torch.cat([away.transpose(1, 2), prototypes.flatten(2).expand(index.shape[0], -1, -1)], dim=1)
    parts = torch.cat([rows_of(k, head.num_gen_params) for k in kernels])[index].split(
        head.weight_nums + head.bias_nums, 1
    )
    for number, (weight, bias) in enumerate(zip(parts[: head.num_dyconvs], parts[head.num_dyconvs :], strict=True)):
        weight = weight.unflatten(1, (bias.shape[1], -1))
        x = torch.baddbmm(bias[:, :, None], weight, x.relu() if number else x)
    return *found, x[:, 0].unflatten(1, prototypes.shape[2:])


def yolox(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """YOLOX: one class per prior, its score times the objectness."""
    head = model.bbox_head
    scores, predictions, objectness = head(model.extract_feat(image))
    sizes = [s.shape[2:] for s in scores]
    priors = head.prior_generator.grid_priors(sizes, scores[0].dtype, scores[0].device, with_stride=True)
    best, labels = torch.cat([rows_of(s, head.cls_out_channels) for s in scores]).sigmoid().max(dim=1)
    predictions = torch.cat([rows_of(p, 4) for p in predictions])
    objectness = torch.cat([rows_of(o, 1) for o in objectness])[:, 0].sigmoid()
    boxes = head._bbox_decode(torch.cat(priors), predictions)
    cfg = head.test_cfg  # MMDetection ignores its max_per_img
    return nms((boxes, best * objectness, labels), dict(nms=cfg["nms"]), cfg["score_thr"])


def yolov3(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """YOLOv3: the best pairs of prior and class of all levels, their scores times the objectness."""
    head, cfg = model.bbox_head, model.bbox_head.test_cfg
    (maps,) = head(model.extract_feat(image))
    priors = head.prior_generator.grid_priors([x.shape[2:] for x in maps], device=image.device)
    rows = [rows_of(x, head.num_attrib) for x in maps]
    strides = torch.cat([x.new_full((x.shape[0], 1), s) for x, s in zip(rows, head.featmap_strides, strict=True)])
    rows, priors = torch.cat(rows), torch.cat(priors)
    objectness, scores = rows[:, 4].sigmoid(), rows[:, 5:].sigmoid()
    scores = torch.where((objectness >= cfg.get("conf_thr", -1))[:, None], scores, NOTHING)
    best, index = _top(scores.flatten(), cfg.get("nms_pre", -1))
    row = index // scores.shape[1]
    deltas = torch.cat([rows[:, :2].sigmoid(), rows[:, 2:4]], dim=1)[row]
    boxes = head.bbox_coder.decode(priors[row], deltas, strides[row])
    best = torch.where(best > cfg.get("score_thr", 0), best * objectness[row], NOTHING)
    return nms((boxes, best, index % scores.shape[1]), cfg, NOTHING)
