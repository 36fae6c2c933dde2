"""Results of MMDetection's heads, by the library's own layers, priors and coders, and exportable post-processing.

MMDetection's ``predict`` branches on the number of boxes, which a recorded graph cannot. Here candidates are ranked and
suppressed by tensor operations only: TopK, NonMaxSuppression and RoIAlign in ONNX.

Boxes ``[N, 4]`` are x1, y1, x2, y2 in pixels; ``limits`` are W, H, W, H of the image without its padding.
"""

from collections.abc import Callable, Sequence, Set
from types import SimpleNamespace
from typing import Any

import numpy as np
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
_TRANSFORMERS = ("DETR", "ConditionalDETR", "DABDETR", "DeformableDETR", "DINO")


def find_detector(model: nn.Module) -> Callable[..., tuple[Tensor, ...]]:
    """Return the function of :data:`DETECTORS` that computes the results of an MMDetection model.

    Raises:
        UserError: a head that cannot be exported with its results.
    """
    head = getattr(model, "roi_head", None) or getattr(model, "bbox_head", None) or model
    find = DETECTORS.get(_predictor(head))
    unlike = [] if find else [head]
    classifiers = [head]
    if find is two_stage:
        classifiers += _stages_of(head.bbox_head)
        unlike += [each for each in classifiers[1:] if _predictor(each) != "BBoxHead"]
        unlike += [each for each in _stages_of(head.bbox_roi_extractor) if type(each).__name__ != "SingleRoIExtractor"]
        if _predictor(getattr(model, "rpn_head", None)) != "RPNHead":
            unlike.append(getattr(model, "rpn_head", model))  # Fast R-CNN has none
    if find is transformer and _predictor(model, {"pre_decoder"}) not in _TRANSFORMERS:
        unlike.append(model)
    losses = [getattr(each, "loss_cls", None) for each in classifiers]
    unlike += [loss for loss in losses if getattr(loss, "custom_cls_channels", False)]
    if unlike:
        names = ", ".join(sorted({type(each).__name__ for each in unlike}))
        raise UserError(f"{names} cannot be exported with results; --raw writes the maps of the network")
    return find


def clips_boxes(head: nn.Module) -> bool:
    """Return whether MMDetection clips the boxes of a head to the image."""
    head = _stages_of(getattr(head, "bbox_head", head))[-1]
    return getattr(getattr(head, "bbox_coder", None), "clip_border", True) and _predictor(head) != "YOLOXHead"


def single_stage(model: nn.Module, image: Tensor, limits: Tensor, threshold: Tensor, cut: Cut) -> Boxes:
    """RetinaNet, RTMDet, PicoDet and others whose head predicts like MMDetection's base class."""
    head = model.bbox_head
    *candidates, _ = _dense_candidates(head, head(model.extract_feat(image)), limits, threshold, cut)
    return nms(candidates, head.test_cfg, NOTHING)


def rtmdet_ins(model: nn.Module, image: Tensor, limits: Tensor, threshold: Tensor, cut: Cut) -> tuple[Tensor, ...]:
    """RTMDet-Ins: boxes as RTMDet's, and logits ``[N, h, w]`` of masks of the padded image, at the stride of the first level."""
    head = model.bbox_head
    scores, predictions, kernels, prototypes = head(model.extract_feat(image))
    candidates = _dense_candidates(head, (scores, predictions), limits, threshold, cut)
    *detections, index = nms(candidates, head.test_cfg, NOTHING)
    generator, device = head.prior_generator, image.device
    priors = torch.cat(generator.grid_priors([s.shape[2:] for s in scores], device=device, with_stride=True))[index]
    places = generator.single_level_grid_priors(prototypes.shape[2:], level_idx=0, device=device)
    # Each detection has a small network of its own, which looks at the prototypes and its distances from the prior.
    away = (priors[:, None, :2] - places) / (priors[:, None, 2:] * 8)
    x = torch.cat([away.transpose(1, 2), cut(prototypes).flatten(2).expand(index.shape[0], -1, -1)], dim=1)
    layers = torch.cat([_rows_of(cut(k), head.num_gen_params) for k in kernels])[index].split(
        head.weight_nums + head.bias_nums, 1
    )
    for number, (weight, bias) in enumerate(zip(layers[: head.num_dyconvs], layers[head.num_dyconvs :], strict=True)):
        weight = weight.unflatten(1, (bias.shape[1], -1))
        x = torch.baddbmm(bias[:, :, None], weight, x.relu() if number else x)
    return *detections, x[:, 0].unflatten(1, prototypes.shape[2:])


def yolox(model: nn.Module, image: Tensor, limits: Tensor, threshold: Tensor, cut: Cut) -> Boxes:
    """YOLOX, which keeps the best class of each prior and multiplies its score by the objectness."""
    head = model.bbox_head
    scores, predictions, objectness = ([cut(x) for x in maps] for maps in head(model.extract_feat(image)))
    sizes = [s.shape[2:] for s in scores]
    priors = head.prior_generator.grid_priors(sizes, scores[0].dtype, scores[0].device, with_stride=True)
    scores = cut(torch.cat([_rows_of(s, head.cls_out_channels) for s in scores]).sigmoid(), exact=True)
    best, labels = scores.max(dim=1)
    predictions = torch.cat([_rows_of(p, 4) for p in predictions])
    objectness = torch.cat([_rows_of(o, 1) for o in objectness])[:, 0].sigmoid()
    boxes = cut(head._bbox_decode(torch.cat(priors), predictions), exact=True)
    # MMDetection ignores its max_per_img
    return nms((boxes, cut(best * objectness, exact=True), labels), dict(nms=head.test_cfg["nms"]), threshold)


def two_stage(model: nn.Module, image: Tensor, limits: Tensor, threshold: Tensor, cut: Cut) -> tuple[Tensor, ...]:
    """Faster, Mask and Cascade (Mask) R-CNN; with masks ``[N, h, w]``, probabilities within the boxes."""
    roi, rpn = model.roi_head, model.rpn_head
    maps = model.extract_feat(image)
    proposals = nms(_dense_candidates(rpn, rpn(maps), limits, NOTHING, cut), rpn.test_cfg, NOTHING)
    boxes = cut(proposals[0], exact=True)
    stages = list(zip(_stages_of(roi.bbox_roi_extractor), _stages_of(roi.bbox_head), strict=True))
    logits = []
    for number, (extractor, head) in enumerate(stages, 1):
        pooled = _pool_regions(extractor, maps, boxes)
        scores, deltas = map(cut, head(roi.shared_head(pooled) if roi.with_shared_head else pooled))
        logits.append(scores)
        deltas = deltas.unflatten(1, (-1, 4))  # of each class, or of all at once
        if number < len(stages):
            deltas = _pick(deltas, scores[:, :-1].argmax(dim=1)) if deltas.shape[1] > 1 else deltas[:, 0]
            boxes = cut(_decode(head.bbox_coder, boxes, deltas, limits), exact=True)
    scores = cut((sum(logits) / len(logits)).softmax(dim=1)[:, :-1], exact=True)
    classes = scores.shape[1]
    every = boxes[:, None].expand(-1, classes, -1).flatten(0, 1)
    boxes = _decode(head.bbox_coder, every, deltas.expand(-1, classes, -1).flatten(0, 1), limits)
    labels = torch.arange(classes, device=scores.device).expand_as(scores).flatten()
    detections = nms((cut(boxes, exact=True), scores.flatten(), labels), roi.test_cfg, threshold)
    if not roi.with_mask:
        return detections
    boxes, _, labels = detections
    masks = []
    extractors = roi.bbox_roi_extractor if roi.share_roi_extractor else roi.mask_roi_extractor
    for extractor, head in zip(_stages_of(extractors), _stages_of(roi.mask_head), strict=True):
        pooled = _pool_regions(extractor, maps, boxes)
        masks.append(cut(head(roi.shared_head(pooled) if roi.with_shared_head else pooled)).sigmoid())
    mask = sum(masks) / len(masks)
    return *detections, mask[:, 0] if mask.shape[1] == 1 else _pick(mask, labels)


def transformer(model: nn.Module, image: Tensor, limits: Tensor, threshold: Tensor, cut: Cut) -> Boxes:
    """DETR, Conditional DETR, DAB-DETR, Deformable DETR and DINO: the best queries, without suppression."""
    maps, size, head = model.extract_feat(image), tuple(image.shape[2:]), model.bbox_head
    if hasattr(model, "level_embed"):
        shared = dict(spatial_shapes=_Sizes(x.shape[2:] for x in maps), level_start_index=None)
        shared["valid_ratios"] = image.new_ones(1, len(maps), 2)
        positions = [model.positional_encoding(None, input=x) for x in maps]
        positions = [x + level[:, None, None] for x, level in zip(positions, model.level_embed, strict=True)]
        # [B, C, H_l, W_l] of all levels l -> [B, N, C]
        tokens, places = (torch.cat([x.flatten(2) for x in each], dim=2).transpose(1, 2) for each in (maps, positions))
        encoded = model.forward_encoder(tokens, None, places, **shared)
        queries = _best_tokens(model, encoded, cut) if model.as_two_stage else model.pre_decoder(**encoded)[0]
        decoded = model.forward_decoder(memory_mask=None, **queries, **shared)
    else:
        sample = SimpleNamespace(img_shape=size, batch_input_shape=size, metainfo=dict(img_shape=size))
        decoded = model.forward_transformer(maps, [sample])
    if _predictor(head) == "DETRHead":  # the layers before the last one are not needed
        decoded = {name: x[-1:] for name, x in decoded.items()}
    scores, boxes = (cut(layers[-1][0]) for layers in head(**decoded))
    count = head.test_cfg.get("max_per_img", scores.shape[0])
    if head.loss_cls.use_sigmoid:
        best, index = top(cut(scores.sigmoid(), exact=True).flatten(), count)
        row, labels = index // scores.shape[1], index % scores.shape[1]
    else:
        best, labels = cut(scores.softmax(dim=1), exact=True)[:, :-1].max(dim=1)
        best, row = top(best, count)
        labels = labels[row]
    centres, sides = boxes[row].split(2, dim=1)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], dim=1)
    # The queries know the padded image only.
    whole = torch.stack([limits.new_zeros(()) + side for side in (*size[::-1], *size[::-1])])
    return _clip(boxes * whole, limits), best, labels


# How the heads of each class compute results from (model, image, limits, threshold, cut).
DETECTORS = {
    **dict.fromkeys(("BaseDenseHead", "GFLHead", "PicoHead"), single_stage),
    **dict.fromkeys(("DETRHead", "DeformableDETRHead"), transformer),
    **dict.fromkeys(("StandardRoIHead", "CascadeRoIHead"), two_stage),
    "RTMDetInsHead": rtmdet_ins,
    "YOLOXHead": yolox,
}


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
    index = wanted.nonzero()[:, 0]
    boxes, scores, labels, *_ = candidates = tuple(x[index] for x in candidates)
    if options.get("class_agnostic"):
        apart = boxes
    else:  # boxes of different labels are moved where they cannot overlap
        extent = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1
        apart = boxes + (labels.to(boxes.dtype) * extent)[:, None]
    best = torchvision.ops.nms(apart, scores, options["iou_threshold"])
    if cfg.get("max_per_img", -1) > 0:
        best = best[: cfg["max_per_img"]]
    return tuple(x[best] for x in candidates)


def _dense_candidates(
    head: nn.Module, outputs: Sequence[Any], limits: Tensor, threshold: Tensor | float, cut: Cut
) -> tuple[Tensor, ...]:
    """The best ``nms_pre`` candidates of each level of a head's outputs, decoded, and the number of each one's prior.

    Candidates whose score, without its factor, is at most ``threshold`` get the score :data:`NOTHING`.
    """
    kind, nms_pre, before, levels = _predictor(head), head.test_cfg.get("nms_pre", -1), 0, []
    scores, predictions, *factors = ([cut(x) for x in maps] for maps in outputs)
    priors = head.prior_generator.grid_priors([s.shape[2:] for s in scores], scores[0].dtype, scores[0].device)
    for level, (logits, prediction, prior) in enumerate(zip(scores, predictions, priors, strict=True)):
        score = _rows_of(logits, head.cls_out_channels)
        score = cut(score.sigmoid() if head.use_sigmoid_cls else score.softmax(dim=1)[:, :-1], exact=True)
        classes = score.shape[1]
        # PicoHead keeps all classes of the best priors, other heads the best pairs of a prior and a class.
        if kind == "PicoHead":
            best, row = _top_or_all(score.amax(dim=1), nms_pre)
            best = torch.where(best[:, None] == NOTHING, NOTHING, score[row]).flatten()
            index = (row[:, None] * classes + torch.arange(classes, device=score.device)).flatten()
        else:
            best, index = _top_or_all(score.flatten(), nms_pre)
        row = index // classes
        scaled = best * _rows_of(factors[0][level], 1)[row, 0].sigmoid() if factors else best
        best = torch.where(best > threshold, scaled, NOTHING)
        prediction = _rows_of(prediction, prediction.shape[1] * head.cls_out_channels // logits.shape[1])[row]
        places = prior[row]
        if kind in ("GFLHead", "PicoHead"):  # the expectation of a distribution over distances, in strides
            places = head.anchor_center(places) if places.shape[1] == 4 else places
            bins = torch.arange(head.reg_max + 1, dtype=prediction.dtype, device=prediction.device)
            stride = head.prior_generator.strides[level][0]
            prediction = (prediction.unflatten(1, (4, -1)).softmax(dim=2) * bins).sum(dim=2) * stride
        boxes = _decode(head.bbox_coder, places, prediction, limits)
        # The labels of region proposals are the numbers of their levels.
        labels = torch.full_like(index, level) if kind == "RPNHead" else index % classes
        levels.append((boxes, best, labels, before + row))
        before = before + prior.shape[0]
    boxes, best, *numbers = (torch.cat(each) for each in zip(*levels, strict=True))
    return cut(boxes, exact=True), cut(best, exact=True), *numbers


def _top_or_all(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest scores and their indices, all of them for -1; too few are filled up with index 0."""
    if count <= 0:
        return scores, torch.arange(scores.shape[0], device=scores.device)
    best, index = top(torch.cat([scores, scores.new_full((count,), NOTHING)]), count)
    return best, torch.where(best == NOTHING, 0, index)


def _decode(coder: Any, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    """Decode predictions ``[N, 4]`` by the library's coder; the borders are tensors, which the coder does not take."""
    torch._check(priors.shape[0] > 0)  # coders return early without boxes; the graph computes the same for none
    boxes = coder.decode(priors, prediction)
    return _clip(boxes, limits) if getattr(coder, "clip_border", False) else boxes


def _clip(boxes: Tensor, limits: Tensor) -> Tensor:
    return torch.minimum(boxes.clamp(min=0), limits)


def _pool_regions(extractor: nn.Module, maps: Sequence[Tensor], boxes: Tensor) -> Tensor:
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


class _Sizes(list):
    """Sizes (H, W) of maps for mmcv's deformable attention. A recorded graph cannot take them from a tensor ``[L, 2]``.

    mmcv compares the sum of the areas, of columns ``[:, i]``, with a number, and divides by a tensor of columns ``[..., i]``.
    """

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            return super().__getitem__(index)
        column = [size[index[1]] for size in self]
        return torch.tensor(column) if index[0] is ... else np.array(column)


def _best_tokens(model: nn.Module, encoded: dict[str, Any], cut: Cut) -> dict[str, Any]:
    """The best tokens of the encoder as queries: ``pre_decoder`` of DINO and of Deformable DETR with two stages."""
    memory, number, embedding = encoded["memory"], model.decoder.num_layers, getattr(model, "query_embedding", None)
    tokens, places = model.gen_encoder_output_proposals(**encoded)
    scores = cut(model.bbox_head.cls_branches[number](tokens)[0])
    _, index = top(scores[:, 0] if embedding is None else scores.amax(dim=1), model.num_queries)
    boxes = (cut(model.bbox_head.reg_branches[number](tokens)[0]) + places[0])[index][None]
    queries = dict(memory=memory, reference_points=boxes.sigmoid())
    if embedding is not None:
        return queries | dict(query=embedding.weight[None], dn_mask=None)
    position, query = model.pos_trans_norm(model.pos_trans_fc(model.get_proposal_pos_embed(boxes))).chunk(2, dim=2)
    return queries | dict(query=query, query_pos=position)


def _predictor(module: Any, methods: Set[str] = _METHODS) -> str:
    """Return the name of the most derived class of a module that defines one of the methods by which heads predict."""
    return next((kind.__name__ for kind in type(module).__mro__ if vars(kind).keys() & methods), "")


def _stages_of(modules: nn.Module) -> Sequence[nn.Module]:
    """Return the modules of a cascade's stages, or the only one."""
    return modules if isinstance(modules, nn.ModuleList) else [modules]


def _rows_of(maps: Tensor, channels: int) -> Tensor:
    """``[1, A C, H, W] -> [H W A, C]``."""
    # Not reshape(-1, channels): PyTorch would divide a symbolic number of elements.
    return maps[0].unflatten(0, (-1, channels)).permute(2, 3, 0, 1).flatten(0, 2)


def _pick(rows: Tensor, index: Tensor) -> Tensor:
    """``[N, K, …], [N] -> [N, …]``: entry ``index[n]`` of row n."""
    return rows[torch.arange(rows.shape[0], device=rows.device), index]
