"""Strict comparison of an exported file with the model that it comes from, and the effect of padding on that model."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError

from .boxes import NOTHING
from .whole import EndToEnd, Exportable

# Largest difference of a value that a few operations compute from compared ones, over 1 + its size.
ROUNDING = 1e-5
# A channel with fewer values has no scale of its own.
_ENOUGH = 64
# If nothing is detected, thresholds are halved up to 6 times, until 10 objects are detected, and left out only then, because the
# suppression of all candidates of 80 classes takes many seconds.
_OBJECTS, _HALVINGS = 10, 6

Run = Callable[[Tensor, Tensor | None], Sequence[Tensor]]  # image, thresholds (None: the file's) -> results, candidates


def examples(module: nn.Module, size: Sequence[int]) -> Tensor:
    """Return two random images of the dtype that ``module`` takes: a smooth one (noise has no objects) and a rough one."""
    generator, mode = torch.Generator().manual_seed(0), "bilinear" if len(size) == 2 else "trilinear"
    coarse = [torch.rand(1, 3, *(cells,) * len(size), generator=generator) for cells in (4, 24)]
    images = [F.interpolate(x, tuple(size), mode=mode, align_corners=True) for x in coarse]
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

    Raises:
        UserError: a value differs by more than ``tolerance``, an exact one by more than :data:`ROUNDING`.
    """

    def __init__(self, recorded: Sequence[Tensor], tolerance: float) -> None:
        self._recorded, self._tolerance = iter(recorded), tolerance
        self.largest = 0.0  # difference so far, without exact values

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
    everything = torch.full((2,), NOTHING)
    lower = [*(module.thresholds / 2**n for n in range(1, _HALVINGS + 1)), everything] if is_detector else []
    for thresholds in (None, *lower):
        recorded = list(run(image, thresholds))
        if thresholds is not None and thresholds is not everything and len(recorded[0]) < _OBJECTS:
            continue
        number = len(module.outputs) if isinstance(module, EndToEnd) else len(recorded)
        follow = Follower([*recorded[number:], *recorded[:number]], tolerance)
        results = module.predict(image, follow, thresholds)
        for index, result in enumerate(results):
            follow(result, exact=is_detector and index < 3)  # masks come from layers behind the last choice
        if len(results[0]) if is_detector else any(result.numel() for result in results):
            return follow.largest
    what = "nothing is detected in a random image" if is_detector else "the network returns no values"
    raise UserError(f"{what}, so that the file cannot be compared")


@torch.no_grad()
def padding_effect(module: EndToEnd, size: Sequence[int]) -> tuple[tuple[int, int], float, float]:
    """Compare the maps of a detector's or segmentor's network on a random image with those on the same image, padded to a size.

    Args:
        module: its model takes images of any size.
        size: H and W of the padded image. The image has about half the height.

    Returns:
        H and W of the image, and the mean and the largest change within the image, over the range of each map.
    """
    prepare, network = module.preprocess, Exportable(module.model)
    height, width = max(size[0] // 64 * 32, min(32, size[0])), size[1]
    coarse = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 4 - 2
    image = F.interpolate(coarse, (height, width), mode="bilinear")
    maps = []
    for side in (height, size[0]):  # without and with the padding, each rounded up to the divisor
        pads = (0, -width % prepare.divisor, 0, side - height + -side % prepare.divisor)
        maps.append(network(F.pad(image, pads, value=prepare.value)))
    changes = [(x - y[..., : x.shape[2], : x.shape[3]]).abs() / (x.max() - x.min()) for x, y in zip(*maps, strict=True)]
    mean = torch.stack([change.mean() for change in changes]).mean()
    return (height, width), mean.item(), max(change.max().item() for change in changes)
