"""Comparison of an exported file with the model that it comes from."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from .whole import EndToEnd, tensors


def example(module: nn.Module, size: Sequence[int], seed: int = 0) -> Tensor:
    """Return a random, smooth image of the dtype that ``module`` takes; smooth, because noise has no objects."""
    coarse = torch.rand(1, 3, *(4,) * len(size), generator=torch.Generator().manual_seed(seed))
    mode = "bicubic" if len(size) == 2 else "trilinear"
    image = nn.functional.interpolate(coarse, tuple(size), mode=mode).clamp(0, 1)
    if isinstance(module, EndToEnd) and module.preprocess.uint8:
        return (image * 255).to(torch.uint8)
    return image * 4 - 2


def largest_difference(
    module: nn.Module, run: Callable[[Tensor], Any], size: Sequence[int], seed: int = 0
) -> float | None:
    """Return the largest difference between ``module`` and ``run`` on a random image, over each output's largest value.

    Detections are compared with the nearest one of their label, masks included.

    Returns:
        The difference; NaN if an output is NaN; None if neither detects anything in the image, so that nothing was compared.
    """
    image = example(module, size, seed)
    with torch.no_grad():
        expected, found = tensors(module(image)), tensors(run(image))
    if isinstance(module, EndToEnd) and module.task == "detection":
        if not len(expected[0]) and not len(found[0]):
            return None
        differences = [_unmatched(expected, found, max(size)), _unmatched(found, expected, max(size))]
    else:
        pairs = zip(found, expected, strict=True)
        differences = [(f - e).abs().max() / e.abs().max().clamp_min(1e-12) for f, e in pairs]
    return torch.tensor(differences).max().item()  # Python's max can drop a NaN


def depends_on_rounding(module: nn.Module, size: Sequence[int], tolerance: float) -> bool:
    """Return whether fp64 changes the results: random weights give nearly equal scores, of which rounding keeps some."""
    exact = deepcopy(module).double()
    difference = largest_difference(module, lambda x: exact(x.double() if x.is_floating_point() else x), size)
    return difference is not None and difference > tolerance


def _unmatched(detections: Sequence[Tensor], others: Sequence[Tensor], side: int) -> float:
    """Return the largest distance of a detection to the nearest other one: of boxes in image sides, of scores, or 1 of the label;
    or the largest difference of their masks.
    """
    (boxes, scores, labels, *masks), (theirs, their_scores, their_labels, *their_masks) = detections, others
    if 0 in (len(boxes), len(theirs)):
        return float(len(boxes) > 0)
    # Random weights can predict boxes far larger than the image.
    distance = ((boxes[:, None] - theirs).abs() / theirs.abs().clamp_min(side)).amax(dim=2)
    distance += (scores[:, None] - their_scores).abs()
    distance, nearest = (distance + (labels[:, None] != their_labels).float()).min(dim=1)
    is_last = scores <= their_scores.min() + 1e-5
    if len(boxes) == len(theirs) >= 100 and not is_last.all():
        distance = torch.where(is_last, 0, distance)  # rounding decides which of these stay in a full list
    differences = [distance]
    for ours, other in zip(masks, their_masks, strict=True):  # probabilities, or logits, which can be large
        differences.append((ours - other[nearest]).abs() / other.abs().max().clamp_min(1))
    return torch.cat([difference.flatten() for difference in differences]).max().item()


def open_file(file: str, suffix: str) -> Callable[[Tensor], Any]:
    """Return an exported file as a function of an image."""
    if suffix == ".pt2":
        return torch.export.load(file).module()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda image: [torch.from_numpy(array) for array in session.run(None, {"image": image.numpy()})]
