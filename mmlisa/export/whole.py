"""Models whose forward returns final results, by the library's own layers and exportable post-processing.

MMDetection's ``predict`` branches on the number of boxes, which a recorded graph cannot. Here candidates are ranked and
suppressed by tensor operations only: TopK, NonMaxSuppression and RoIAlign in ONNX. Priors and coders are the library's.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from mmlisa.errors import UserError
from mmlisa.ops.landmarks import pooling_windows

from .boxes import NOTHING, Cut, predictor, stages_of
from .dense import DENSE, rtmdet_ins, single_stage, yolov3, yolox
from .queries import DeformableAttention, transformer
from .regions import sparse, two_stage

# How the heads of each class compute results from (model, image, limits, thresholds, cut).
DETECTORS = {
    **dict.fromkeys(DENSE.keys() - {"RPNHead"}, single_stage),
    **dict.fromkeys(("DETRHead", "DeformableDETRHead"), transformer),
    **dict.fromkeys(("StandardRoIHead", "CascadeRoIHead"), two_stage),
    "SparseRoIHead": sparse,
    "RTMDetInsHead": rtmdet_ins,
    "YOLOXHead": yolox,
    "YOLOV3Head": yolov3,
}
_TRANSFORMERS = ("DETR", "ConditionalDETR", "DABDETR", "DeformableDETR", "DINO")


def clips_boxes(head: nn.Module) -> bool:
    """Return whether MMDetection clips the boxes of a head to the image."""
    head = stages_of(getattr(head, "bbox_head", head))[-1]
    coder = getattr(head, "bbox_coder", None)
    return getattr(coder, "clip_border", True) and predictor(head) not in ("TOODHead", "YOLOXHead", "YOLOV3Head")


def find_detector(model: nn.Module) -> Callable[..., tuple[Tensor, ...]]:
    """Return the function of :data:`DETECTORS` that computes the results of an MMDetection model.

    Raises:
        UserError: a head that cannot be exported with its results.
    """
    head = getattr(model, "roi_head", None) or getattr(model, "bbox_head", None) or model
    find = DETECTORS.get(predictor(head))
    unlike = [] if find else [head]
    classifiers = [head]
    if find in (two_stage, sparse):
        classifiers += stages_of(head.bbox_head)
        unlike += [each for each in classifiers[1:] if predictor(each) != "BBoxHead"]
        unlike += [each for each in stages_of(head.bbox_roi_extractor) if type(each).__name__ != "SingleRoIExtractor"]
    if find is two_stage and predictor(getattr(model, "rpn_head", None)) != "RPNHead":
        unlike.append(getattr(model, "rpn_head", model))  # Fast R-CNN has none
    if find is sparse and head.with_mask:  # QueryInst
        unlike += stages_of(head.mask_head)
    if find is transformer and predictor(model, {"pre_decoder"}) not in _TRANSFORMERS:
        unlike.append(model)
    losses = [getattr(each, "loss_cls", None) for each in classifiers]
    unlike += [loss for loss in losses if getattr(loss, "custom_cls_channels", False)]
    if unlike:
        names = ", ".join(sorted({type(each).__name__ for each in unlike}))
        raise UserError(f"{names} cannot be exported with results; --raw writes the maps of the network")
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
    """Return a copy of a model, with its weights, without the layers in which a recorded graph would keep the example's size."""
    model = deepcopy(model, {id(x): x for x in (*model.parameters(), *model.buffers())})
    for module in list(model.modules()):
        for name, child in module.named_children():
            kind = type(child).__name__
            # mmseg's, which computes its size with int()
            if kind == "Upsample" and getattr(child, "scale_factor", None) and not child.size:
                layer = nn.Upsample(None, child.scale_factor, child.mode, child.align_corners)
            elif kind == "AdaptiveAvgPool2d" and isinstance(child.output_size, int) and child.output_size > 1:
                layer = _AveragePool(child.output_size)
            elif kind in ("AdaptivePadding", "Conv2dAdaptivePadding"):
                layer = _AdaptivePadding(child)
            elif kind == "MultiScaleDeformableAttention":  # takes sizes as tensors
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
    """

    def __init__(self, model: nn.Module, uint8: bool = False) -> None:
        super().__init__()
        preprocessor = model.data_preprocessor
        self.uint8 = uint8
        self.register_buffer("mean", getattr(preprocessor, "mean", torch.zeros(3, 1, 1)).clone())
        self.register_buffer("std", getattr(preprocessor, "std", torch.ones(3, 1, 1)).clone())
        self.value, self.divisor = getattr(preprocessor, "pad_value", 0), getattr(preprocessor, "pad_size_divisor", 1)
        if hasattr(preprocessor, "test_cfg"):  # mmseg's; its other sizes are those of a training
            self.divisor = (preprocessor.test_cfg or {}).get("size_divisor") or 1

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

    A detector takes one image and returns boxes, scores, labels (and masks within the boxes). A segmentor returns logits of the
    padded size. A classifier of images, or of clips ``[B, 3, T, H, W]``, returns probabilities.

    Args:
        model: a model of mmdet, mmseg or mmpretrain, which is put into evaluation mode.
        uint8: see :class:`Preprocess`.

    Attributes:
        task: ``'detection'``, ``'segmentation'``, ``'classification'`` or ``'video'``.
        outputs: names of the results.
        thresholds: of a detector, the score up to which it drops candidates, and YOLOv3's threshold of objectness.

    Raises:
        UserError: a head or test setting that cannot be exported.
    """

    def __init__(self, model: nn.Module, uint8: bool = False) -> None:
        super().__init__()
        self.preprocess = Preprocess(model, uint8)
        self.model = model.eval().requires_grad_(False)
        if hasattr(model, "encode_decode"):
            self.task, self.outputs = "segmentation", ("logits",)
            padding = getattr(model.data_preprocessor, "test_cfg", None) or {}
            unlike = {
                f"model.test_cfg.mode={model.test_cfg.get('mode')!r}": model.test_cfg.get("mode", "whole") != "whole",
                "model.decode_head.out_channels=1": model.out_channels == 1,  # the runtime has no threshold
                "model.data_preprocessor.test_cfg.size": padding.get("size"),
                f"the pixel decoder of {type(model.decode_head).__name__}": hasattr(model.decode_head, "pixel_decoder"),
            }
            if hamburger := getattr(model.decode_head, "hamburger", None):  # SegNeXt's
                unlike["model.decode_head.ham_kwargs.rand_init=True"] = hamburger.ham.rand_init
                with torch.no_grad():  # otherwise it draws its bases at the first image
                    model.encode_decode(torch.zeros(1, 3, 64, 64), [dict(img_shape=(64, 64))])
            if refused := [name for name, is_set in unlike.items() if is_set]:
                advice = "change it by --cfg-options, or " if refused[0].startswith("model.") else ""
                raise UserError(f"{refused[0]} cannot be exported with results; {advice}write the logits by --raw")
        elif hasattr(model, "bbox_head") or hasattr(model, "roi_head"):
            self.task, self.detect = "detection", find_detector(model)
            head = getattr(model, "roi_head", None) or model.bbox_head
            with_mask = self.detect is rtmdet_ins or getattr(head, "with_mask", False)
            self.outputs = ("boxes", "scores", "labels", *["masks"] * with_mask)
            thresholds = [(head.test_cfg or {}).get(key, NOTHING) for key in ("score_thr", "conf_thr")]
            self.register_buffer("thresholds", torch.tensor(thresholds))
        elif hasattr(model, "head"):
            from mmpretrain.models.heads import ClsHead

            head, methods = type(model.head), ("predict", "_get_predictions")
            if any(getattr(head, method, None) is not getattr(ClsHead, method) for method in methods):
                raise UserError(f"{head.__name__} does not predict probabilities by a softmax; --raw writes the scores")
            self.task = "video" if type(model).__name__ == "VideoClassifier" else "classification"
            self.outputs = ("probabilities",)
        else:
            raise UserError(f"{type(model).__name__} cannot be exported with results; --raw writes its maps")

    def forward(self, image: Tensor, limits: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the results, and the values that lead to a choice, see :meth:`predict`."""
        return tuple(self.named_outputs(image, limits).values())

    def named_outputs(self, image: Tensor, limits: Tensor | None = None) -> dict[str, Tensor]:
        """Return the same by name, the values as ``candidate_0`` and so on."""
        candidates: dict[str, Tensor] = {}

        def keep(x: Tensor, exact: bool = False) -> Tensor:
            candidates[f"candidate_{len(candidates)}"] = x
            return x

        results = self.predict(image, keep, limits=limits)
        return dict(zip(self.outputs, results, strict=True)) | candidates

    def predict(
        self, image: Tensor, cut: Cut, thresholds: Tensor | None = None, limits: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the results.

        Results of detectors are not continuous: rounding decides which of two equal candidates suppresses the other. Whatever
        leads to a choice is passed to ``cut``, and the choice is made among the values that ``cut`` returns.

        Args:
            image: see :class:`Preprocess`.
            cut: function ``(x, exact=False) -> x`` of the values before a choice. ``exact``: layers of the network do not lie
                between this value and others that were cut, so that the value is theirs up to the rounding of a few operations.
            thresholds: in the place of the attribute.
            limits: the second result of :class:`Preprocess`, if ``image`` is the first; otherwise None.
        """
        if limits is None:
            image, limits = self.preprocess(image)
        model = self.model
        if self.task == "detection":
            thresholds = self.thresholds if thresholds is None else thresholds
            return self.detect(model, image, limits, thresholds.unbind(), cut)
        if self.task == "segmentation":
            return (model.encode_decode(image, [dict(img_shape=tuple(image.shape[2:]))]),)
        features = model.extract_feat(image)
        scores = model.scores(features) if hasattr(model, "scores") else model.head(features)
        return (cut(scores).softmax(dim=1),)


class Exportable(nn.Module):
    """Maps of a normalised and padded image ``[B, 3, H, W]``, for decoding outside of the file.

    A classifier gives its scores, a segmentor its logits. A detector gives the maps of its head, of its region proposals if it
    has two stages, or of its neck if its head is a transformer. With ``backbone_only``, a model gives the maps of its backbone.
    """

    def __init__(self, model: nn.Module, backbone_only: bool = False) -> None:
        super().__init__()
        self.model, self.backbone_only = model.eval().requires_grad_(False), backbone_only

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.named_outputs(image).values())

    def predict(self, image: Tensor, *_: Any) -> tuple[Tensor, ...]:
        return self(image)

    def named_outputs(self, image: Tensor) -> dict[str, Tensor]:
        """Return ``scores_0``, ``boxes_0`` and ``factors_0`` of the first level of a dense head and so on, before any activation.

        A segmentor has ``logits``, a classifier ``scores``, every other model ``map_0`` and so on.
        """
        model = self.model
        if not self.backbone_only and hasattr(model, "encode_decode"):
            return dict(logits=model.encode_decode(image, [dict(img_shape=image.shape[2:])]))
        maps = model.backbone(image) if self.backbone_only else model.extract_feat(image)
        # Transformer heads take queries and not maps.
        head = next((getattr(model, name) for name in ("rpn_head", "bbox_head", "head") if hasattr(model, name)), None)
        if head is not None and not self.backbone_only and not hasattr(model, "decoder"):
            maps = head(maps)
            if isinstance(maps, Tensor):
                return dict(scores=maps)
            if len(maps) in (2, 3) and all(isinstance(levels, list | tuple) for levels in maps):
                named = zip(("scores", "boxes", "factors"), maps, strict=False)
                return {f"{name}_{level}": x for name, levels in named for level, x in enumerate(levels)}
        return {f"map_{number}": x for number, x in enumerate(tree_leaves(maps))}
