"""Heads that look at regions: Faster, Mask and Cascade R-CNN, and Sparse R-CNN."""

from collections.abc import Sequence

import torch
import torchvision.ops
from torch import Tensor, nn

from .boxes import NOTHING, Boxes, Cut, decode_boxes, nms, stages_of, top
from .dense import dense_candidates


def pool_regions(extractor: nn.Module, maps: Sequence[Tensor], boxes: Tensor) -> Tensor:
    """RoIAlign of each box on the level that fits its size (MMDetection's ``SingleRoIExtractor``)."""
    maps = maps[: extractor.num_inputs]
    regions = torch.cat([torch.zeros_like(boxes[:, :1]), boxes], dim=1)
    levels = extractor.map_roi_levels(regions, len(maps))
    pooled = boxes.new_zeros(boxes.shape[0], extractor.out_channels, *extractor.roi_layers[0].output_size)
    for level, (layer, features) in enumerate(zip(extractor.roi_layers, maps, strict=True)):
        index = (levels == level).nonzero()[:, 0]
        aligned = torchvision.ops.roi_align(
            features, regions[index], layer.output_size, layer.spatial_scale, layer.sampling_ratio, layer.aligned
        )
        pooled = pooled.index_put((index,), aligned)
    return pooled


def two_stage(
    model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut
) -> tuple[Tensor, ...]:
    """Faster, Mask and Cascade (Mask) R-CNN; with masks ``[N, h, w]``, probabilities within the boxes."""
    roi, rpn = model.roi_head, model.rpn_head
    maps = model.extract_feat(image)
    proposals = nms(dense_candidates(rpn, rpn(maps), limits, NOTHING, cut), rpn.test_cfg, NOTHING)
    boxes = cut(proposals[0], exact=True)
    stages = list(zip(stages_of(roi.bbox_roi_extractor), stages_of(roi.bbox_head), strict=True))
    logits = []
    for number, (extractor, head) in enumerate(stages, 1):
        pooled = pool_regions(extractor, maps, boxes)
        scores, deltas = map(cut, head(roi.shared_head(pooled) if roi.with_shared_head else pooled))
        logits.append(scores)
        deltas = deltas.unflatten(1, (-1, 4))  # of each class, or of all at once
        if number < len(stages):
            deltas = _pick(deltas, scores[:, :-1].argmax(dim=1)) if deltas.shape[1] > 1 else deltas[:, 0]
            boxes = cut(decode_boxes(head.bbox_coder, boxes, deltas, limits), exact=True)
    scores = cut((sum(logits) / len(logits)).softmax(dim=1)[:, :-1], exact=True)
    classes = scores.shape[1]
    every = boxes[:, None].expand(-1, classes, -1).flatten(0, 1)
    boxes = decode_boxes(head.bbox_coder, every, deltas.expand(-1, classes, -1).flatten(0, 1), limits)
    labels = torch.arange(classes, device=scores.device).expand_as(scores).flatten()
    detections = nms((cut(boxes, exact=True), scores.flatten(), labels), roi.test_cfg, thresholds[0])
    if not roi.with_mask:
        return detections
    boxes, _, labels = detections
    masks = []
    extractors = roi.bbox_roi_extractor if roi.share_roi_extractor else roi.mask_roi_extractor
    for extractor, head in zip(stages_of(extractors), stages_of(roi.mask_head), strict=True):
        pooled = pool_regions(extractor, maps, boxes)
        masks.append(cut(head(roi.shared_head(pooled) if roi.with_shared_head else pooled)).sigmoid())
    mask = sum(masks) / len(masks)
    return *detections, mask[:, 0] if mask.shape[1] == 1 else _pick(mask, labels)


def sparse(model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut) -> Boxes:
    """Sparse R-CNN: the best pairs of a class and a learned box, which each stage refines; without suppression."""
    roi, maps = model.roi_head, model.extract_feat(image)
    centres, sides = (model.rpn_head.init_proposal_bboxes.weight * limits).split(2, dim=1)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], dim=1)
    features = model.rpn_head.init_proposal_features.weight[None]
    for extractor, head in zip(roi.bbox_roi_extractor, roi.bbox_head, strict=True):
        scores, deltas, features, _ = head(pool_regions(extractor, maps, boxes), features)
        boxes = cut(decode_boxes(head.bbox_coder, boxes, cut(deltas[0]), limits), exact=True)
        features = cut(features)
    scores = cut(scores[0])
    scores = scores.sigmoid() if head.loss_cls.use_sigmoid else scores.softmax(dim=1)[:, :-1]
    best, index = top(cut(scores, exact=True).flatten(), roi.test_cfg["max_per_img"])
    return boxes[index // scores.shape[1]], best, index % scores.shape[1]


def _pick(rows: Tensor, index: Tensor) -> Tensor:
    """``[N, K, …], [N] -> [N, …]``: entry ``index[n]`` of row n."""
    return rows[torch.arange(rows.shape[0], device=rows.device), index]
