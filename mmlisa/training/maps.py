"""The maps of a model's backbone and neck, compared with the strides of its heads and the sizes of its images.

The sizes are those of a forward pass on zeros, in evaluation mode and without gradients.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor, gcd
from typing import Any

import torch
from mmengine.dataset import pseudo_collate
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from mmlisa.errors import UserError

_SIDE = 224  # a multiple of 32, and of patches of 14 and 16 pixels
_ODD = (65, 97)
_DIVISORS = (2, 4, 8, 14, 16, 28, 32, 56)
_READ = 8  # images

Size = tuple[int, int]  # height and width


def check_strides(model: nn.Module) -> str:
    """Compare the maps with the strides of a detector's anchors, points and RoI extractors.

    A dense head takes all maps, a RoI extractor may take the first ones only. Heads that have no strides are not looked at. If
    the network does not run on 224x224 pixels, nothing is compared, and the returned note says so.

    Raises:
        UserError: number or strides differ; the message has both.
    """
    dense, extractors = dict(_dense_strides(model)), dict(_extractor_strides(model))
    if not dense and not extractors:
        return ""
    try:
        maps = _run(model, (_SIDE, _SIDE))
        sizes = [tuple(x.shape[-2:]) for x in ([maps] if isinstance(maps, Tensor) else maps)]
    except Exception as error:  # whatever a network raises
        return f"strides of heads and maps are not compared: {_first_line(error)} (on {_SIDE}x{_SIDE} pixels)"
    for place, strides in {**dense, **extractors}.items():
        enough = len(strides) == len(sizes) if place in dense else len(strides) <= len(sizes)
        if not enough or not all(map(_fits, sizes, strides)):
            source = "neck" if getattr(model, "neck", None) is not None else "backbone"
            returned = f"model.{source} ({type(getattr(model, source)).__name__}) returns {_listed(_strides_of(sizes))}"
            taken = _listed([horizontal for _, horizontal in strides])
            remedy = "Change these strides, or out_indices of the backbone and start_level and num_outs of the neck"
            raise UserError(f"model.{place} takes {taken}, but {returned}. {remedy}")
    return ""


def check_sizes(model: nn.Module, dataset: Any, split: str) -> str:
    """Refuse images of a data set that the network does not take after the padding of the preprocessor.

    A network that runs on a padded image of 65x97 pixels takes any image. For others, such as a ViT without padding, some images
    are read, and the network runs on the sizes of two. If it does not run on 224x224 pixels either, the returned note says that
    nothing was compared. Classifiers and models that read several views of an image are not looked at.

    Raises:
        UserError: the network does not take an image; the message has its size and the setting to change.
    """
    is_classifier = hasattr(model, "head")
    if is_classifier or not hasattr(model, "backbone") or not hasattr(model, "extract_feat"):
        return ""
    blank = dict(inputs=torch.zeros(_channels(model), *_ODD, dtype=torch.uint8), data_samples=BaseDataElement())
    if _failure(model, _input_size(model, blank)) is None:
        return ""
    if (error := _failure(model, (_SIDE, _SIDE))) is not None:
        return f"sizes of the {split} images are not checked: {_first_line(error)} (on {_SIDE}x{_SIDE} pixels)"
    items = [dataset[index] for index in sorted({number * len(dataset) // _READ for number in range(_READ)})]
    if not all(isinstance(item.get("inputs"), Tensor) for item in items):  # several views of an image
        return ""
    sizes = {_input_size(model, item) for item in items}
    for size in sorted(sizes, key=lambda size: gcd(*size))[:2]:  # those that divide worst
        if (error := _failure(model, size)) is not None:
            network = f"model.backbone ({type(model.backbone).__name__})"
            given = f"an image of {size[0]}x{size[1]} pixels, which {split}_dataloader gives it"
            raise UserError(f"{network} does not take {given} ({_first_line(error)}): set {_remedy(model)}")
    return ""


def _dense_strides(model: nn.Module) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield place and strides (vertical, horizontal) of each dense head, also of a cascade of proposal heads."""
    for head in ("rpn_head", "bbox_head"):
        modules = getattr(model, head).named_modules() if isinstance(getattr(model, head, None), nn.Module) else ()
        for name, module in modules:
            for attribute in ("prior_generator", "square_anchor_generator"):
                strides = getattr(getattr(module, attribute, None), "strides", None)
                if strides is not None:
                    yield f"{head}.{name}".rstrip("."), [(vertical, horizontal) for horizontal, vertical in strides]


def _extractor_strides(model: nn.Module) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield place and strides of the RoI extractors of boxes and masks; those of a semantic branch read other maps."""
    roi_head = getattr(model, "roi_head", None)
    for extractor in ("bbox_roi_extractor", "mask_roi_extractor"):
        if isinstance(getattr(roi_head, extractor, None), nn.Module):
            for name, module in getattr(roi_head, extractor).named_modules():  # a cascade has a list of them
                if hasattr(module, "featmap_strides"):
                    place = f"roi_head.{extractor}.{name}".rstrip(".")
                    yield place, [(stride, stride) for stride in module.featmap_strides]


def _run(model: nn.Module, size: Size) -> Any:
    """Return what backbone and neck return for an image of zeros. The model's mode is restored."""
    image = next(model.parameters()).new_zeros(1, _channels(model), *size)
    was_training, modes = model.training, {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            return model.extract_feat(image)
    finally:
        model.train(was_training)
        for module, mode in modes.items():  # norm_eval has no effect before the first call of train
            module.training = mode


def _channels(model: nn.Module) -> int:
    mean = getattr(model.data_preprocessor, "mean", None)
    return 3 if mean is None else len(mean)


def _failure(model: nn.Module, size: Size) -> Exception | None:
    """Return what the network raises for an image of this size; None if it runs."""
    try:
        _run(model, size)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        return error
    return None


def _input_size(model: nn.Module, item: dict[str, Any]) -> Size:
    """Return the size in which the network gets an image in a test: padded and, for a sliding window, cut."""
    height, width = model.data_preprocessor(pseudo_collate([item]), False)["inputs"].shape[-2:]
    window = _window(model)
    return (min(height, window[0]), min(width, window[1])) if window else (height, width)


def _window(model: nn.Module) -> Sequence[int] | None:
    """Return the window of a segmentor that slides over the image."""
    test_cfg = getattr(model, "test_cfg", None) or {}
    return test_cfg.get("crop_size") if test_cfg.get("mode") == "slide" else None


def _remedy(model: nn.Module) -> str:
    """Return the setting that gives a network images of a size that it takes."""
    divisor = next((number for number in _DIVISORS if _failure(model, _round_up(_ODD, number)) is None), None)
    if divisor is None:
        return f"the test pipeline to images of a size that it takes, such as {_SIDE}x{_SIDE}"
    if _window(model):
        return f"model.test_cfg.crop_size to multiples of {divisor}"
    if hasattr(model.data_preprocessor, "test_cfg"):  # mmseg's, which by default pads no test image
        return f"model.data_preprocessor.test_cfg=dict(size_divisor={divisor})"
    return f"model.data_preprocessor.pad_size_divisor={divisor}"


def _round_up(size: Size, divisor: int) -> Size:
    height, width = (ceil(side / divisor) * divisor for side in size)
    return height, width


def _fits(size: Size, strides: tuple[float, float]) -> bool:
    """Return True if a map of an image of :data:`_SIDE` has these strides."""
    return all(map(_side_fits, size, strides))


def _side_fits(side: int, stride: float) -> bool:
    return floor(_SIDE / stride) <= side <= ceil(_SIDE / stride)  # networks round in either way


def _strides_of(sizes: Sequence[Size]) -> list[float]:
    """Return the horizontal strides of maps: twice that of the map before, if the rounded side allows it."""
    strides: list[float] = []
    for _, width in sizes:
        doubled = 2 * strides[-1] if strides else _SIDE
        strides.append(doubled if _side_fits(width, doubled) else _SIDE / width)
    return strides


def _listed(strides: Sequence[float]) -> str:
    return f"{len(strides)} maps of strides {', '.join(f'{stride:.3g}' for stride in strides)}"


def _first_line(error: Exception) -> str:
    first, _, _ = str(error).strip().partition("\n")
    return f"{type(error).__name__}: {first[:120].rstrip('.')}"
