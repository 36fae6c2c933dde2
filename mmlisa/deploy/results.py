"""Models whose forward returns final results, by the library's own layers and exportable post-processing.

MMDetection's ``predict`` branches on the number of boxes, which a recorded graph cannot. Here candidates are ranked and
suppressed by tensor operations only: TopK, NonMaxSuppression and RoIAlign in ONNX. Priors and coders are the library's. Boxes are
``[N, 4]``: x1, y1, x2, y2 in pixels.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
import torchvision.ops
from torch import Tensor, nn

from mmlisa.ops.interactive import pooling_windows

Boxes = tuple[Tensor, Tensor, Tensor]  # boxes [N, 4], scores [N], labels [N]
# The score of a candidate that only fills up a level with fewer than `nms_pre` candidates.
_NOTHING = -1.0


# --- boxes -------------------------------------------------------------------------------------------------------------------


def clip_boxes(boxes: Tensor, limits: Tensor) -> Tensor:
    """Clip boxes to an image, ``limits`` being its (W, H, W, H)."""
    return torch.minimum(boxes.clamp(min=0), limits)


def decode_boxes(coder: Any, priors: Tensor, prediction: Tensor, limits: Tensor) -> Tensor:
    """Decode predictions ``[N, 4]`` by the library's coder; the borders are tensors, which the coder does not take."""
    torch._check(priors.shape[0] > 0)  # coders return early without boxes; the graph computes the same for none
    boxes = coder.decode(priors, prediction)
    return clip_boxes(boxes, limits) if getattr(coder, "clip_border", False) else boxes


def nms(candidates: tuple[Tensor, ...], cfg: Any, threshold: float) -> tuple[Tensor, ...]:
    """Drop candidates up to ``threshold`` and those that overlap a better one of their label; best first.

    Args:
        candidates: :data:`Boxes`, and more about each of them.
        cfg: MMDetection's ``test_cfg``: ``nms``, and ``max_per_img`` and ``min_bbox_size`` if they apply.

    Raises:
        ValueError: another kind of suppression than plain NMS.
    """
    options = dict(cfg["nms"])
    if options.pop("type", "nms") != "nms" or options.keys() - {"iou_threshold", "class_agnostic"}:
        raise ValueError(f"nms={dict(cfg['nms'])} cannot be exported; only dict(type='nms', iou_threshold=…)")
    boxes, scores, *_ = candidates
    wanted = scores > threshold
    if cfg.get("min_bbox_size", -1) >= 0:
        wanted &= (boxes[:, 2:] - boxes[:, :2] > cfg["min_bbox_size"]).all(dim=1)
    boxes, scores, labels, *_ = candidates = _take(candidates, wanted.nonzero()[:, 0])
    if options.get("class_agnostic"):
        apart = boxes
    else:  # boxes of different labels are moved where they cannot overlap
        extent = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max() + 1
        apart = boxes + (labels.to(boxes.dtype) * extent)[:, None]
    kept = torchvision.ops.nms(apart, scores, options["iou_threshold"])
    if cfg.get("max_per_img", -1) > 0:
        kept = kept[: cfg["max_per_img"]]
    return _take(candidates, kept)


def _take(candidates: tuple[Tensor, ...], index: Tensor) -> tuple[Tensor, ...]:
    return tuple(part[index] for part in candidates)


# --- heads that predict on maps ----------------------------------------------------------------------------------------------


def dense_candidates(head: nn.Module, outputs: Sequence[Any], limits: Tensor, cfg: Any) -> tuple[Tensor, ...]:
    """The best ``nms_pre`` candidates of each level of a head's outputs, decoded, and the number of each one's prior.

    A candidate is a pair of a prior and a class. PicoDet and PAA rank priors, and keep all classes of the best ones. The labels
    of region proposals are the numbers of their levels.
    """
    scores, predictions, *factors = outputs
    kind, before = _predictor(head), 0
    keeps_priors = kind in ("PicoHead", "PAAHead")
    if kind == "PicoHead":
        predictions = head.to_distances(predictions)
    priors = head.prior_generator.grid_priors([s.shape[2:] for s in scores], scores[0].dtype, scores[0].device)
    found = []
    for level, (score, prediction, prior) in enumerate(zip(scores, predictions, priors, strict=True)):
        score = _rows(score, head.cls_out_channels)
        if kind != "TOODHead":  # TOOD's are probabilities
            score = score.sigmoid() if head.use_sigmoid_cls else score.softmax(dim=1)[:, :-1]
        classes = score.shape[1]
        factor = _rows(factors[0][level], 1).sigmoid() if factors else None
        if keeps_priors:
            score = score if factor is None else (score * factor).sqrt()
            best, row = _top(score.amax(dim=1), cfg.get("nms_pre", -1))
            best = torch.where(best[:, None] == _NOTHING, _NOTHING, score[row]).flatten()
            index = (row[:, None] * classes + torch.arange(classes)).flatten()
        else:
            best, index = _top(score.flatten(), cfg.get("nms_pre", -1))
        row = index // classes
        # The threshold applies to the score without its factor.
        scaled = best if factor is None or keeps_priors else best * factor[row, 0]
        best = torch.where(best > cfg.get("score_thr", _NOTHING), scaled, _NOTHING)
        prediction = _rows(prediction, 4 * (head.reg_max + 1) if kind == "GFLHead" else 4)[row]
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
    best, index = torch.cat([scores, scores.new_full((count,), _NOTHING)]).topk(count)
    return best, torch.where(best == _NOTHING, 0, index)


def _rows(maps: Tensor, channels: int) -> Tensor:
    """``[1, A C, H, W] -> [H W A, C]``."""
    # Not reshape(-1, channels): PyTorch would divide a symbolic number of elements.
    return maps[0].unflatten(0, (-1, channels)).permute(2, 3, 0, 1).flatten(0, 2)


def single_stage(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """RetinaNet, RTMDet, PicoDet and others whose head predicts like MMDetection's base class."""
    head = model.bbox_head
    cfg = head.test_cfg
    *candidates, _ = dense_candidates(head, head(model.extract_feat(image)), limits, cfg)
    if _predictor(head) != "PAAHead":
        return nms(candidates, cfg, _NOTHING)
    # PAA ignores min_bbox_size.
    found = nms(candidates, dict(nms=cfg["nms"], max_per_img=cfg["max_per_img"]), cfg["score_thr"])
    return vote(found, candidates, cfg["score_thr"]) if head.with_score_voting else found


def vote(found: Boxes, candidates: Boxes, threshold: float) -> Boxes:
    """Replace each box by the mean of the candidates of its label, weighted by score and overlap (PAA, section 3.3)."""
    boxes, scores, labels = _take(candidates, (candidates[1] > threshold).nonzero()[:, 0])
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
    *found, index = nms(dense_candidates(head, (scores, predictions), limits, cfg), cfg, _NOTHING)
    generator, device = head.prior_generator, image.device
    priors = torch.cat(generator.grid_priors([s.shape[2:] for s in scores], device=device, with_stride=True))[index]
    places = generator.single_level_grid_priors(prototypes.shape[2:], level_idx=0, device=device)
    away = (priors[:, None, :2] - places) / (priors[:, None, 2:] * 8)
    x = torch.cat([away.transpose(1, 2), prototypes.flatten(2).expand(index.shape[0], -1, -1)], dim=1)
    parts = torch.cat([_rows(k, head.num_gen_params) for k in kernels])[index].split(
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
    best, labels = torch.cat([_rows(s, head.cls_out_channels) for s in scores]).sigmoid().max(dim=1)
    predictions = torch.cat([_rows(p, 4) for p in predictions])
    objectness = torch.cat([_rows(o, 1) for o in objectness])[:, 0].sigmoid()
    boxes = head._bbox_decode(torch.cat(priors), predictions)
    cfg = head.test_cfg  # MMDetection ignores its max_per_img
    return nms((boxes, best * objectness, labels), dict(nms=cfg["nms"]), cfg["score_thr"])


def yolov3(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """YOLOv3: the best pairs of prior and class of all levels, their scores times the objectness."""
    head, cfg = model.bbox_head, model.bbox_head.test_cfg
    (maps,) = head(model.extract_feat(image))
    priors = head.prior_generator.grid_priors([x.shape[2:] for x in maps], device=image.device)
    rows = [_rows(x, head.num_attrib) for x in maps]
    strides = torch.cat([x.new_full((x.shape[0], 1), s) for x, s in zip(rows, head.featmap_strides, strict=True)])
    rows, priors = torch.cat(rows), torch.cat(priors)
    objectness, scores = rows[:, 4].sigmoid(), rows[:, 5:].sigmoid()
    scores = torch.where((objectness >= cfg.get("conf_thr", -1))[:, None], scores, _NOTHING)
    best, index = _top(scores.flatten(), cfg.get("nms_pre", -1))
    row = index // scores.shape[1]
    deltas = torch.cat([rows[:, :2].sigmoid(), rows[:, 2:4]], dim=1)[row]
    boxes = head.bbox_coder.decode(priors[row], deltas, strides[row])
    best = torch.where(best > cfg.get("score_thr", 0), best * objectness[row], _NOTHING)
    return nms((boxes, best, index % scores.shape[1]), cfg, _NOTHING)


# --- heads that look at regions ----------------------------------------------------------------------------------------------


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


def two_stage(model: nn.Module, image: Tensor, limits: Tensor) -> tuple[Tensor, ...]:
    """Faster, Mask and Cascade (Mask) R-CNN; with masks ``[N, h, w]``, probabilities within the boxes."""
    roi = model.roi_head
    maps = model.extract_feat(image)
    rpn = model.rpn_head
    boxes, *_ = nms(dense_candidates(rpn, rpn(maps), limits, rpn.test_cfg), rpn.test_cfg, _NOTHING)
    stages = list(zip(_stages(roi.bbox_roi_extractor), _stages(roi.bbox_head), strict=True))
    logits = []
    for number, (extractor, head) in enumerate(stages, 1):
        pooled = pool_regions(extractor, maps, boxes)
        scores, deltas = head(roi.shared_head(pooled) if roi.with_shared_head else pooled)
        logits.append(scores)
        deltas = deltas.unflatten(1, (-1, 4))  # of each class, or of all at once
        if number < len(stages):
            deltas = _pick(deltas, scores[:, :-1].argmax(dim=1)) if deltas.shape[1] > 1 else deltas[:, 0]
            boxes = decode_boxes(head.bbox_coder, boxes, deltas, limits)
    scores = (sum(logits) / len(logits)).softmax(dim=1)[:, :-1]
    classes = scores.shape[1]
    every = boxes[:, None].expand(-1, classes, -1).flatten(0, 1)
    boxes = decode_boxes(head.bbox_coder, every, deltas.expand(-1, classes, -1).flatten(0, 1), limits)
    labels = torch.arange(classes).expand_as(scores).flatten()
    found = nms((boxes, scores.flatten(), labels), roi.test_cfg, roi.test_cfg["score_thr"])
    if not roi.with_mask:
        return found
    boxes, _, labels = found
    masks = []
    extractors = roi.bbox_roi_extractor if roi.share_roi_extractor else roi.mask_roi_extractor
    for extractor, head in zip(_stages(extractors), _stages(roi.mask_head), strict=True):
        pooled = pool_regions(extractor, maps, boxes)
        masks.append(head(roi.shared_head(pooled) if roi.with_shared_head else pooled).sigmoid())
    mask = sum(masks) / len(masks)
    return *found, mask[:, 0] if mask.shape[1] == 1 else _pick(mask, labels)


def sparse(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """Sparse R-CNN: the best pairs of a class and a learned box, which each stage refines; without suppression."""
    roi, maps = model.roi_head, model.extract_feat(image)
    centres, sides = (model.rpn_head.init_proposal_bboxes.weight * limits).split(2, dim=1)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], dim=1)
    features = model.rpn_head.init_proposal_features.weight[None]
    for extractor, head in zip(roi.bbox_roi_extractor, roi.bbox_head, strict=True):
        scores, deltas, features, _ = head(pool_regions(extractor, maps, boxes), features)
        boxes = decode_boxes(head.bbox_coder, boxes, deltas[0], limits)
    scores = scores[0].sigmoid() if head.loss_cls.use_sigmoid else scores[0].softmax(dim=1)[:, :-1]
    best, index = scores.flatten().topk(roi.test_cfg["max_per_img"])
    return boxes[index // scores.shape[1]], best, index % scores.shape[1]


def _stages(modules: nn.Module) -> Sequence[nn.Module]:
    return modules if isinstance(modules, nn.ModuleList) else [modules]


def _pick(rows: Tensor, index: Tensor) -> Tensor:
    """``[N, K, …], [N] -> [N, …]``: entry ``index[n]`` of row n."""
    return rows[torch.arange(rows.shape[0]), index]


# --- heads that look at queries ----------------------------------------------------------------------------------------------


def transformer(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """DETR, Conditional DETR, DAB-DETR, Deformable DETR and DINO: the best queries, without suppression.

    The ``pre_transformer`` of Deformable DETR and DINO holds the sizes of the maps in tensors, from which a recorded graph cannot
    take them. Here they are numbers, which :class:`DeformableAttention` reads.
    """
    maps, size = model.extract_feat(image), tuple(image.shape[2:])  # the queries know the padded image only
    sample = SimpleNamespace(img_shape=size, batch_input_shape=size, metainfo=dict(img_shape=size))
    if hasattr(model, "level_embed"):
        shared = dict(spatial_shapes=[tuple(x.shape[2:]) for x in maps], level_start_index=None)
        shared["valid_ratios"] = image.new_ones(1, len(maps), 2)
        positions = [model.positional_encoding(None, input=x) for x in maps]
        positions = [x + level[:, None, None] for x, level in zip(positions, model.level_embed, strict=True)]
        encoded = model.forward_encoder(_tokens(maps), None, _tokens(positions), **shared)
        queries, _ = model.pre_decoder(**encoded)
        decoded = model.forward_decoder(memory_mask=None, **queries, **shared)
    else:
        decoded = model.forward_transformer(maps, [sample])
    (found,) = model.bbox_head.predict(**decoded, batch_data_samples=[sample], rescale=False)
    return clip_boxes(found.bboxes, limits), found.scores, found.labels


class DeformableAttention(nn.Module):
    """mmcv's ``MultiScaleDeformableAttention``, with the sizes of the maps as numbers instead of a tensor."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.samples = (attention.num_heads, attention.num_levels, attention.num_points)
        for name, layer in attention.named_children():  # under their names, so that checkpoints fit
            self.add_module(name, layer)

    def forward(
        self,
        query: Tensor,
        *,
        value: Tensor,
        reference_points: Tensor,
        spatial_shapes: Sequence[tuple[int, int]],
        query_pos: Tensor | None = None,
        identity: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """``query [B, Q, C]``, ``value [B, N, C]``, ``reference_points [B, Q, L, 2 or 4]`` -> ``[B, Q, C]``."""
        from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        heads, *samples = self.samples
        offsets = self.sampling_offsets(query).unflatten(2, (heads, *samples, 2))
        weights = self.attention_weights(query).unflatten(2, (heads, -1)).softmax(dim=-1).unflatten(3, samples)
        reference = reference_points[:, :, None, :, None]
        if reference.shape[-1] == 2:
            sides = torch.stack([value.new_zeros(()) + side for h, w in spatial_shapes for side in (w, h)])
            scale = 1 / sides.view(-1, 1, 2)
        else:
            scale = reference[..., 2:] * (0.5 / samples[1])
        value = self.value_proj(value).unflatten(2, (heads, -1))
        attended = multi_scale_deformable_attn_pytorch(
            value, spatial_shapes, reference[..., :2] + offsets * scale, weights
        )
        return self.output_proj(attended) + identity


def _tokens(maps: Sequence[Tensor]) -> Tensor:
    """``[B, C, H_l, W_l]`` of all levels ``l`` -> ``[B, N, C]``."""
    return torch.cat([x.flatten(2) for x in maps], dim=2).transpose(1, 2)


# --- whole models ------------------------------------------------------------------------------------------------------------


# Methods by which heads predict, and the function for each class that defines one of them.
_METHODS = {
    *("predict_by_feat", "_predict_by_feat_single", "_bbox_post_process", "regress_by_class"),
    *("predict_bbox", "predict_mask", "_bbox_forward", "_mask_forward"),
}
_DENSE = ("BaseDenseHead", "GFLHead", "TOODHead", "PAAHead", "FoveaHead", "RepPointsHead", "PicoHead")
_DETECTORS = {
    **dict.fromkeys(_DENSE, single_stage),
    **dict.fromkeys(("DETRHead", "DeformableDETRHead"), transformer),
    **dict.fromkeys(("StandardRoIHead", "CascadeRoIHead"), two_stage),
    "SparseRoIHead": sparse,
    "RTMDetInsHead": rtmdet_ins,
    "YOLOXHead": yolox,
    "YOLOV3Head": yolov3,
}


def _predictor(head: Any) -> str:
    """Name of the most derived class of a head that defines one of the methods by which heads predict."""
    return next((kind.__name__ for kind in type(head).__mro__ if vars(kind).keys() & _METHODS), "")


def clips_boxes(head: nn.Module) -> bool:
    """Return whether MMDetection clips the boxes of a head to the image."""
    head = _stages(getattr(head, "bbox_head", head))[-1]
    coder = getattr(head, "bbox_coder", None)
    return getattr(coder, "clip_border", True) and _predictor(head) not in ("TOODHead", "YOLOXHead", "YOLOV3Head")


def find_detector(model: nn.Module) -> Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, ...]]:
    """Return the function that computes the results of an MMDetection model.

    Raises:
        ValueError: a head that cannot be exported with its results.
    """
    head = getattr(model, "roi_head", None) or getattr(model, "bbox_head", None) or model
    find, parts = _DETECTORS.get(_predictor(head)), [(head, tuple(_DETECTORS))]
    if find in (two_stage, sparse):
        parts += [(part, ("BBoxHead",)) for part in _stages(head.bbox_head)]
    if find is two_stage:
        parts += [(getattr(model, "rpn_head", model), ("RPNHead",))]  # Fast R-CNN has none
    unlike = [part for part, known in parts if _predictor(part) not in known]
    losses = [getattr(part, "loss_cls", None) for part, _ in parts]
    unlike += [loss for loss in losses if getattr(loss, "custom_cls_channels", False)]
    if find in (two_stage, sparse):
        unlike += [part for part in _stages(head.bbox_roi_extractor) if type(part).__name__ != "SingleRoIExtractor"]
    if find is sparse and head.with_mask:  # QueryInst
        unlike += _stages(head.mask_head)
    if unlike:
        names = ", ".join(sorted({type(part).__name__ for part in unlike}))
        raise ValueError(f"{names} cannot be exported with results; --raw writes the maps of the network")
    return find


class _AveragePool(nn.Module):
    """``nn.AdaptiveAvgPool2d`` as two products with averaging matrices, which follow the size of the map."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (pooling_windows(size, self.side, x) for size in x.shape[2:])
        return rows @ x @ columns.T


class _AdaptivePadding(nn.Module):
    """``AdaptivePadding`` and ``Conv2dAdaptivePadding`` in integers, for images that need a padding and others."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer, pads = self.layer, []
        sizes = zip(x.shape[2:], layer.kernel_size, layer.stride, layer.dilation, strict=True)
        for size, kernel, stride, dilation in sizes:
            extent = (kernel - 1) * dilation + 1
            total = (-(-size // stride) - 1) * stride + extent - size
            total = total if extent >= stride else torch.sym_max(total, 0)  # a maximum lets symbols grow without bound
            before = 0 if layer.padding == "corner" else total // 2
            pads = [before, total - before, *pads]
        x = F.pad(x, pads)
        return nn.Conv2d.forward(layer, x) if isinstance(layer, nn.Conv2d) else x


def follow_sizes(model: nn.Module) -> nn.Module:
    """Replace the layers of a model in which a recorded graph would keep the size of the example.

    They are mmseg's ``Upsample``, which computes its size with ``int()``, adaptive pooling to more than one cell, adaptive
    padding, and the deformable attention of DINO and its relatives, which takes sizes as tensors.
    """
    for module in list(model.modules()):
        for name, child in module.named_children():
            kind = type(child).__name__
            if kind == "Upsample" and getattr(child, "scale_factor", None) and not child.size:
                layer = nn.Upsample(None, child.scale_factor, child.mode, child.align_corners)
            elif kind == "AdaptiveAvgPool2d" and isinstance(child.output_size, int) and child.output_size > 1:
                layer = _AveragePool(child.output_size)
            elif kind in ("AdaptivePadding", "Conv2dAdaptivePadding"):
                layer = _AdaptivePadding(child)
            elif kind == "MultiScaleDeformableAttention":
                layer = DeformableAttention(child)
            else:
                continue
            setattr(module, name, layer)
    return model


def takes_rgb(preprocessor: nn.Module) -> bool:
    """Return whether a data preprocessor turns the images, which OpenMMLab reads as BGR, into RGB."""
    return getattr(preprocessor, "_channel_conversion", getattr(preprocessor, "to_rgb", True))


class Preprocess(nn.Module):
    """``[B, 3, H, W]`` -> the same normalised and padded to multiples of the model's divisor, and (W, H, W, H).

    Args:
        model: its data preprocessor has mean, standard deviation, divisor, and the normalised value of the padding.
        uint8: the images have integers from 0 to 255; otherwise they are normalised already.

    Attributes:
        least: H and W to which the data preprocessor pads smaller images; this module does not.
        is_rgb: the channels of the image are red, green and blue; otherwise the reverse.
    """

    def __init__(self, model: nn.Module, uint8: bool = False) -> None:
        super().__init__()
        preprocessor = model.data_preprocessor
        self.uint8 = uint8
        self.register_buffer("mean", getattr(preprocessor, "mean", torch.zeros(3, 1, 1)).clone())
        self.register_buffer("std", getattr(preprocessor, "std", torch.ones(3, 1, 1)).clone())
        self.is_rgb = takes_rgb(preprocessor)
        self.value, self.divisor = getattr(preprocessor, "pad_value", 0), getattr(preprocessor, "pad_size_divisor", 1)
        self.least = (0, 0)
        if hasattr(preprocessor, "test_cfg"):  # mmseg's; its other sizes are those of a training
            test_cfg = preprocessor.test_cfg or {}
            self.divisor, self.least = test_cfg.get("size_divisor"), tuple(test_cfg.get("size") or self.least)
        self.divisor = self.divisor or 1

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        if self.uint8:
            image = (image.to(self.mean.dtype) - self.mean) / self.std
        height, width = image.shape[-2:]
        limits = torch.stack([image.new_zeros(()) + side for side in (width, height, width, height)])
        if self.divisor > 1:
            image = F.pad(image, (0, -width % self.divisor, 0, -height % self.divisor), value=self.value)
        return image, limits


class EndToEnd(nn.Module):
    """A model from the image to its final results.

    ``forward(image)`` takes the input of :class:`Preprocess`. A detector takes one image and returns boxes, scores, labels (and
    masks within the boxes). A segmentor returns logits of the padded size. A classifier of images, or of clips
    ``[B, 3, T, H, W]``, returns probabilities.

    Args:
        model: a model of mmdet, mmseg or mmpretrain; some of its layers are replaced, see :func:`follow_sizes`.
        uint8: see :class:`Preprocess`.

    Attributes:
        task: ``'detection'``, ``'segmentation'``, ``'classification'`` or ``'video'``.
        outputs: names of the results.

    Raises:
        ValueError: a head or test setting that cannot be exported.
    """

    def __init__(self, model: nn.Module, uint8: bool = False) -> None:
        super().__init__()
        self.preprocess = Preprocess(model, uint8)
        self.model = follow_sizes(model.eval().requires_grad_(False))
        if hasattr(model, "encode_decode"):
            self.task, self.outputs = "segmentation", ("logits",)
            hamburger = getattr(model.decode_head, "hamburger", None)  # SegNeXt's
            unlike = {
                f"model.test_cfg.mode={model.test_cfg.get('mode')!r}": model.test_cfg.get("mode", "whole") != "whole",
                "model.decode_head.out_channels=1": model.out_channels == 1,  # the runtime has no threshold
                "model.decode_head.ham_kwargs.rand_init=True": hamburger and hamburger.ham.rand_init,
                f"the pixel decoder of {type(model.decode_head).__name__}": hasattr(model.decode_head, "pixel_decoder"),
            }
            if hamburger:  # with rand_init=False, it draws its bases at the first image
                with torch.no_grad():
                    model.encode_decode(torch.zeros(1, 3, 64, 64), [dict(img_shape=(64, 64))])
            if found := [name for name, is_set in unlike.items() if is_set]:
                advice = "change it by --cfg-options, or " if found[0].startswith("model.") else ""
                raise ValueError(f"{found[0]} cannot be exported with results; {advice}write the logits by --raw")
        elif hasattr(model, "bbox_head") or hasattr(model, "roi_head"):
            self.task, self.detect = "detection", find_detector(model)
            with_mask = self.detect is rtmdet_ins or (hasattr(model, "roi_head") and model.roi_head.with_mask)
            self.outputs = ("boxes", "scores", "labels", *["masks"] * with_mask)
        elif hasattr(model, "head"):
            from mmpretrain.models.heads import ClsHead

            kind, methods = type(model.head), ("predict", "_get_predictions")
            if any(getattr(kind, method, None) is not getattr(ClsHead, method) for method in methods):
                raise ValueError(
                    f"{type(model.head).__name__} does not predict probabilities by a softmax; --raw writes the scores"
                )
            self.task = "video" if type(model).__name__ == "VideoClassifier" else "classification"
            self.outputs = ("probabilities",)
        else:
            raise ValueError(f"{type(model).__name__} cannot be exported with results; --raw writes its maps")

    def forward(self, image: Tensor, limits: Tensor | None = None) -> tuple[Tensor, ...]:
        """``limits``: the second result of :class:`Preprocess`, if ``image`` is the first; otherwise None."""
        if limits is None:
            image, limits = self.preprocess(image)
        model = self.model
        if self.task == "detection":
            return self.detect(model, image, limits)
        if self.task == "segmentation":
            return (model.encode_decode(image, [dict(img_shape=tuple(image.shape[2:]))]),)
        features = model.extract_feat(image)
        scores = model.scores(features) if hasattr(model, "scores") else model.head(features)
        return (scores.softmax(dim=1),)
