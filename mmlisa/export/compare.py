"""Strict comparison of an exported file with the model that it comes from."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError

from .boxes import NOTHING
from .whole import EndToEnd

# Largest difference of a value that a few operations compute from compared ones, over 1 + its size.
ROUNDING = 1e-5
# A channel with fewer values has no scale of its own.
_ENOUGH = 64
# If nothing is detected, thresholds are halved until so many objects are, and at last left out.
_OBJECTS, _HALVINGS = 10, 7

Run = Callable[[Tensor, Tensor | None], Sequence[Tensor]]  # image, thresholds (None: the file's) -> results, candidates


def examples(module: nn.Module, size: Sequence[int]) -> Tensor:
    """Return two random images of the dtype that ``module`` takes: a smooth one (noise has no objects) and a rough one."""
    generator, mode = torch.Generator().manual_seed(0), "bilinear" if len(size) == 2 else "trilinear"
    coarse = [torch.rand(1, 3, *(cells,) * len(size), generator=generator) for cells in (4, 24)]
    images = [nn.functional.interpolate(x, tuple(size), mode=mode, align_corners=True) for x in coarse]
    if isinstance(module, EndToEnd) and module.preprocess.uint8:
        return (torch.cat(images) * 255).to(torch.uint8)
    return torch.cat(images) * 4 - 2


def difference(expected: Tensor, found: Tensor, exact: bool = False) -> float:
    """Return the largest difference of two tensors, or infinity if one is not finite, or another shape or dtype.

    It is relative to the distance of the value from the median of its channel (axis 1), but at least to the distance that a tenth
    of the values exceed: with a range, a single large value would hide the errors of all others. (The median distance is too
    small for rounding errors: RTMDet's scores of a smooth image are 400 times apart at an object.) It is also relative at least
    to 1 % of the value, and to 1 % of what a tenth of a channel exceeds in half of the channels. With ``exact``, it is relative
    to 1 plus the largest value of a row, such as a box.
    """
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return float("inf")
    if not expected.numel():
        return 0.0
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, found) else float("inf")
    if not (expected.isfinite().all() and found.isfinite().all()):
        return float("inf")
    apart = (found - expected).abs()
    if exact:
        return (apart / (1 + expected.abs().amax(dim=-1, keepdim=True))).max().item()
    if expected.ndim > 1 and expected.select(1, 0).numel() >= _ENOUGH:
        expected, apart = (x.transpose(0, 1).flatten(1) for x in (expected, apart))
    else:
        expected, apart = expected.reshape(1, -1), apart.reshape(1, -1)
    size, away = expected.abs(), (expected - expected.median(dim=1, keepdim=True).values).abs()
    scale = away.maximum(_high(away)).maximum(size / 100).maximum(_high(size).median() / 100).clamp_min(1e-12)
    return (apart / scale).max().item()


def _high(rows: Tensor) -> Tensor:
    """``[C, N] -> [C, 1]``: what a tenth of the values of each row exceed; not the largest one if there are several."""
    return rows.kthvalue(1 + 9 * (rows.shape[1] - 1) // 10, dim=1, keepdim=True).values


class Follower:
    """The ``cut`` of :meth:`EndToEnd.predict` that compares a model with recorded values, and lets the model go on with them.

    Candidates of a file and of its model differ by rounding, and rounding decides about choices between equal candidates. Here
    the model chooses among the file's candidates, so that its choices must be the file's.

    Attributes:
        largest: largest difference so far, without exact values.

    Raises:
        UserError: a value differs by more than ``tolerance``, an exact one by more than :data:`ROUNDING`.
    """

    def __init__(self, recorded: Sequence[Tensor], tolerance: float) -> None:
        self._recorded, self._tolerance, self.largest = iter(recorded), tolerance, 0.0

    def __call__(self, expected: Tensor, exact: bool = False) -> Tensor:
        found = next(self._recorded, torch.zeros(()))
        apart, limit = difference(expected, found, exact), ROUNDING if exact else self._tolerance
        if not apart <= limit:
            raise UserError(
                f"a value of shape {list(expected.shape)} differs by {apart:.1e} of {'1 + its size' if exact else 'its scale'}"
                f", more than {limit:.1e}"
            )
        self.largest = max(self.largest, 0.0 if exact else apart)
        return found


def compare(module: nn.Module, run: Run, image: Tensor, tolerance: float) -> float:
    """Return the largest difference between a model and its file, results and candidates, on an image.

    If a detector finds nothing above its thresholds, the comparison is repeated with lower ones.

    Raises:
        UserError: see :class:`Follower`; no values are returned; nothing is detected without thresholds either.
    """
    is_detector = getattr(module, "task", "") == "detection"
    recorded, thresholds = list(run(image, None)), None
    while True:
        number = len(module.outputs) if isinstance(module, EndToEnd) else len(recorded)
        follow = Follower([*recorded[number:], *recorded[:number]], tolerance)
        results = module.predict(image, follow, thresholds)
        for index, result in enumerate(results):
            follow(result, exact=is_detector and index < 3)  # masks come from layers behind the last choice
        if not is_detector and not any(result.numel() for result in results):
            raise UserError("the network returns no values, so that the file cannot be compared")
        if not is_detector or len(results[0]):
            return follow.largest
        if thresholds is not None:
            raise UserError("nothing is detected in a random image, so that the results cannot be compared")
        for halvings in range(1, _HALVINGS + 1):  # suppression of all candidates of 80 classes takes many seconds
            thresholds = module.thresholds / 2**halvings if halvings < _HALVINGS else torch.full((2,), NOTHING)
            recorded = list(run(image, thresholds))
            if len(recorded[0]) >= _OBJECTS:
                break
