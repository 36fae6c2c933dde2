"""Models whose forward returns final results, or the maps of the network: what is exported."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from mmlisa.errors import UserError

from .heads import NOTHING, Cut, find_detector, rtmdet_ins


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
        threshold: of a detector, the score up to which it drops candidates.

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
            threshold = (head.test_cfg or {}).get("score_thr", NOTHING)
            self.register_buffer("threshold", torch.tensor(float(threshold)))
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
        self, image: Tensor, cut: Cut, threshold: Tensor | None = None, limits: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the results.

        Results of detectors are not continuous: rounding decides which of two equal candidates suppresses the other. Whatever
        leads to a choice is passed to ``cut``, and the choice is made among the values that ``cut`` returns.

        Args:
            image: see :class:`Preprocess`.
            cut: function ``(x, exact=False) -> x`` of the values before a choice. ``exact``: layers of the network do not lie
                between this value and others that were cut, so that the value is theirs up to the rounding of a few operations.
            threshold: in the place of the attribute.
            limits: the second result of :class:`Preprocess`, if ``image`` is the first; otherwise None.
        """
        if limits is None:
            image, limits = self.preprocess(image)
        model = self.model
        if self.task == "detection":
            return self.detect(model, image, limits, self.threshold if threshold is None else threshold, cut)
        if self.task == "segmentation":
            return (model.encode_decode(image, [dict(img_shape=tuple(image.shape[2:]))]),)
        features = model.extract_feat(image)
        scores = model.scores(features) if hasattr(model, "scores") else model.head(features)
        return (cut(scores).softmax(dim=1),)


class Exportable(nn.Module):
    """Maps of a normalised and padded image ``[B, 3, H, W]``, for decoding outside of the file.

    A classifier gives its scores, a segmentor its logits. A detector gives the maps of its head, of its region proposals if it
    has two stages, or of its neck if its head is a transformer. A backbone gives its maps.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        model.eval()  # returns nothing for mmdet's Swin
        self.model = model.requires_grad_(False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.named_outputs(image).values())

    def predict(self, image: Tensor, *_: Any) -> tuple[Tensor, ...]:
        return self(image)

    def named_outputs(self, image: Tensor) -> dict[str, Tensor]:
        """Return ``scores_0``, ``boxes_0`` and ``factors_0`` of the first level of a dense head and so on, before any activation.

        A segmentor has ``logits``, a classifier ``scores``, every other model ``map_0`` and so on.
        """
        model = self.model
        if hasattr(model, "encode_decode"):
            return dict(logits=model.encode_decode(image, [dict(img_shape=image.shape[2:])]))
        maps = getattr(model, "extract_feat", model)(image)
        head = next((getattr(model, name) for name in ("rpn_head", "bbox_head", "head") if hasattr(model, name)), None)
        if head is not None and not hasattr(model, "decoder"):  # transformer heads take queries and not maps
            maps = head(maps)
            if isinstance(maps, Tensor):
                return dict(scores=maps)
            if len(maps) in (2, 3) and all(isinstance(levels, list | tuple) for levels in maps):
                named = zip(("scores", "boxes", "factors"), maps, strict=False)
                return {f"{name}_{level}": x for name, levels in named for level, x in enumerate(levels)}
        return {f"map_{number}": x for number, x in enumerate(tree_leaves(maps))}
