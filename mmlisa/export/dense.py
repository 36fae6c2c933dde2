"""Heads that predict on maps: their candidates are decoded, ranked and suppressed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torchvision.ops
from torch import Tensor, nn

from .boxes import NOTHING, Boxes, Cut, clip_boxes, decode_boxes, nms, predictor, rows_of, take, top

# Not infinity: PyTorch's converter fails on a clamp between an integer and a float.
_UNLIMITED = (10**9, 10**9)


def _activate(head: nn.Module, logits: Tensor) -> Tensor:
    return logits.sigmoid() if head.use_sigmoid_cls else logits.softmax(dim=1)[:, :-1]


# How a head decodes the boxes of a level: (head, level, priors [P, 4 or 2], predictions [P, numbers], limits) -> [P, 4].


def _by_coder(head: nn.Module, level: int, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    return decode_boxes(head.bbox_coder, priors, prediction, limits)


def _by_bins(head: nn.Module, level: int, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    """GFL and PicoDet: the expectation of a distribution over distances."""
    priors = head.anchor_center(priors) if priors.shape[1] == 4 else priors
    bins = torch.arange(head.reg_max + 1, dtype=prediction.dtype, device=prediction.device)
    distances = (prediction.unflatten(1, (4, -1)).softmax(dim=2) * bins).sum(dim=2) * _stride(head, level)
    return decode_boxes(head.bbox_coder, priors, distances, limits)


def _fovea(head: nn.Module, level: int, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    boxes = head._bbox_decode(priors, prediction, head.base_edge_list[level], _UNLIMITED)
    return clip_boxes(boxes, limits - 1)


def _reppoints(head: nn.Module, level: int, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    return clip_boxes(head._bbox_decode(priors, prediction, _stride(head, level), _UNLIMITED), limits)


def _stride(head: nn.Module, level: int) -> int:
    stride = head.prior_generator.strides[level]
    return stride[0] if isinstance(stride, tuple) else stride


@dataclass(frozen=True)
class Dense:
    """How a class of MMDetection's heads predicts, where it differs from the base class.

    Attributes:
        decode: see above.
        score: function from the head and its logits ``[P, K]`` to probabilities ``[P, C]``.
        by_prior: rank priors and keep all classes of the best ones; otherwise rank pairs of a prior and a class.
        by_level: labels are the numbers of the levels.
    """

    decode: Callable[..., Tensor] = _by_coder
    score: Callable[[nn.Module, Tensor], Tensor] = _activate
    by_prior: bool = False
    by_level: bool = False


DENSE = {
    **dict.fromkeys(("BaseDenseHead", "RTMDetInsHead"), Dense()),
    "RPNHead": Dense(by_level=True),
    "PAAHead": Dense(by_prior=True),
    "GFLHead": Dense(_by_bins),
    "PicoHead": Dense(_by_bins, by_prior=True),
    "FoveaHead": Dense(_fovea),
    "RepPointsHead": Dense(_reppoints),
    # TOOD's scores are probabilities, its boxes lack the stride only.
    "TOODHead": Dense(lambda head, level, _, boxes, __: boxes * _stride(head, level), lambda head, scores: scores),
}


def dense_candidates(
    head: nn.Module, outputs: Sequence[Any], limits: Tensor, threshold: Tensor | float, cut: Cut
) -> tuple[Tensor, ...]:
    """The best ``nms_pre`` candidates of each level of a head's outputs, decoded, and the number of each one's prior.

    Candidates whose score, without its factor, is at most ``threshold`` get the score :data:`NOTHING`.
    """
    dense, nms_pre, before, levels = DENSE[predictor(head)], head.test_cfg.get("nms_pre", -1), 0, []
    scores, predictions, *factors = ([cut(x) for x in maps] for maps in outputs)
    priors = head.prior_generator.grid_priors([s.shape[2:] for s in scores], scores[0].dtype, scores[0].device)
    for level, (logits, prediction, prior) in enumerate(zip(scores, predictions, priors, strict=True)):
        score = dense.score(head, rows_of(logits, head.cls_out_channels))
        factor = rows_of(factors[0][level], 1).sigmoid() if factors else score.new_ones(1, 1)
        if dense.by_prior:
            score = cut((score * factor).sqrt() if factors else score, exact=True)
            best, row = _top(score.amax(dim=1), nms_pre)
            classes = torch.arange(score.shape[1], device=score.device)
            best = torch.where(best[:, None] == NOTHING, NOTHING, score[row]).flatten()
            index = (row[:, None] * score.shape[1] + classes).flatten()
        else:
            score = cut(score, exact=True)
            best, index = _top(score.flatten(), nms_pre)
        row = index // score.shape[1]
        scaled = best * factor[row, 0] if factors and not dense.by_prior else best
        best = torch.where(best > threshold, scaled, NOTHING)
        prediction = rows_of(prediction, prediction.shape[1] * head.cls_out_channels // logits.shape[1])[row]
        boxes = dense.decode(head, level, prior[row], prediction, limits)
        labels = torch.full_like(index, level) if dense.by_level else index % score.shape[1]
        levels.append((boxes, best, labels, before + row))
        before = before + prior.shape[0]
    boxes, best, *numbers = (torch.cat(each) for each in zip(*levels, strict=True))
    return cut(boxes, exact=True), cut(best, exact=True), *numbers


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest scores and their indices, all of them for -1; too few are filled up with index 0."""
    if count <= 0:
        return scores, torch.arange(scores.shape[0], device=scores.device)
    best, index = top(torch.cat([scores, scores.new_full((count,), NOTHING)]), count)
    return best, torch.where(best == NOTHING, 0, index)


def single_stage(model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut) -> Boxes:
    """RetinaNet, RTMDet, PicoDet and others whose head predicts like MMDetection's base class."""
    head, cfg = model.bbox_head, model.bbox_head.test_cfg
    *candidates, _ = dense_candidates(head, head(model.extract_feat(image)), limits, thresholds[0], cut)
    is_paa = predictor(head) == "PAAHead"
    if is_paa:
        cfg = dict(nms=cfg["nms"], max_per_img=cfg["max_per_img"])  # PAA ignores min_bbox_size
    detections = nms(candidates, cfg, NOTHING)
    return vote(detections, candidates) if is_paa and head.with_score_voting else detections


def vote(detections: Boxes, candidates: Boxes) -> Boxes:
    """Replace each box by the mean of the candidates of its label, weighted by score and overlap (PAA, section 3.3)."""
    boxes, scores, labels = take(candidates, (candidates[1] > NOTHING).nonzero()[:, 0])
    overlap = torchvision.ops.box_iou(detections[0], boxes)
    counts = (overlap > 0.01) & (labels == detections[2][:, None])
    weight = torch.where(counts, (-((1 - overlap) ** 2) / 0.025).exp() * scores, 0)
    return weight @ boxes / weight.sum(dim=1, keepdim=True), *detections[1:]


def rtmdet_ins(
    model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut
) -> tuple[Tensor, ...]:
    """RTMDet-Ins: boxes as RTMDet's, and logits ``[N, h, w]`` of masks of the padded image, at the stride of the first level."""
    head = model.bbox_head
    scores, predictions, kernels, prototypes = head(model.extract_feat(image))
    candidates = dense_candidates(head, (scores, predictions), limits, thresholds[0], cut)
    *detections, index = nms(candidates, head.test_cfg, NOTHING)
    generator, device = head.prior_generator, image.device
    priors = torch.cat(generator.grid_priors([s.shape[2:] for s in scores], device=device, with_stride=True))[index]
    places = generator.single_level_grid_priors(prototypes.shape[2:], level_idx=0, device=device)
    # Each detection has a small network of its own, which looks at the prototypes and its distances from the prior.
    away = (priors[:, None, :2] - places) / (priors[:, None, 2:] * 8)
    x = torch.cat([away.transpose(1, 2), cut(prototypes).flatten(2).expand(index.shape[0], -1, -1)], dim=1)
    layers = torch.cat([rows_of(cut(k), head.num_gen_params) for k in kernels])[index].split(
        head.weight_nums + head.bias_nums, 1
    )
    for number, (weight, bias) in enumerate(zip(layers[: head.num_dyconvs], layers[head.num_dyconvs :], strict=True)):
        weight = weight.unflatten(1, (bias.shape[1], -1))
        x = torch.baddbmm(bias[:, :, None], weight, x.relu() if number else x)
    return *detections, x[:, 0].unflatten(1, prototypes.shape[2:])


def yolox(model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut) -> Boxes:
    """YOLOX, which keeps the best class of each prior and multiplies its score by the objectness."""
    head = model.bbox_head
    scores, predictions, objectness = ([cut(x) for x in maps] for maps in head(model.extract_feat(image)))
    sizes = [s.shape[2:] for s in scores]
    priors = head.prior_generator.grid_priors(sizes, scores[0].dtype, scores[0].device, with_stride=True)
    scores = cut(torch.cat([rows_of(s, head.cls_out_channels) for s in scores]).sigmoid(), exact=True)
    best, labels = scores.max(dim=1)
    predictions = torch.cat([rows_of(p, 4) for p in predictions])
    objectness = torch.cat([rows_of(o, 1) for o in objectness])[:, 0].sigmoid()
    boxes = cut(head._bbox_decode(torch.cat(priors), predictions), exact=True)
    # MMDetection ignores its max_per_img
    return nms((boxes, cut(best * objectness, exact=True), labels), dict(nms=head.test_cfg["nms"]), thresholds[0])


def yolov3(model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut) -> Boxes:
    """YOLOv3: the best pairs of prior and class of all levels, their scores times the objectness."""
    head, cfg = model.bbox_head, model.bbox_head.test_cfg
    maps = [cut(x) for x in head(model.extract_feat(image))[0]]
    priors = head.prior_generator.grid_priors([x.shape[2:] for x in maps], device=image.device)
    rows = [rows_of(x, head.num_attrib) for x in maps]
    strides = torch.cat([x.new_full((x.shape[0], 1), s) for x, s in zip(rows, head.featmap_strides, strict=True)])
    rows, priors = torch.cat(rows), torch.cat(priors)
    objectness = cut(rows[:, 4].sigmoid(), exact=True)
    scores = torch.where((objectness >= thresholds[1])[:, None], cut(rows[:, 5:].sigmoid(), exact=True), NOTHING)
    best, index = _top(scores.flatten(), cfg.get("nms_pre", -1))
    row = index // scores.shape[1]
    deltas = torch.cat([rows[:, :2].sigmoid(), rows[:, 2:4]], dim=1)[row]
    boxes = cut(head.bbox_coder.decode(priors[row], deltas, strides[row]), exact=True)
    best = torch.where(best > thresholds[0], best * objectness[row], NOTHING)
    return nms((boxes, best, index % scores.shape[1]), cfg, NOTHING)
