"""Models as ONNX files, compared strictly with the model they come from."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from mmlisa.checkpoints import atomic_path
from mmlisa.errors import UserError

from .conditions import list_conditions
from .graph import FIX_SIZE, can_be_free, follow_sizes, to_onnx
from .heads import NOTHING
from .whole import EndToEnd, Exportable

# The size of the example if the network takes any: no side is a usual size of pretraining.
EXAMPLE = (160, 288)
# Compared besides: the usual size of pretraining, an image higher than wide with sides that are odd at every stride, a small one.
OTHER_SIZES = ((224, 224), (225, 129), (33, 64))
# Limits of the comparison at sizes at which a condition of the recording does not hold: all sizes, and pixels of one.
_MOST_SIZES, _MOST_PIXELS = 14, 800 * 1344
# Largest difference of a value that a few operations compute from compared ones, over 1 + its size.
ROUNDING = 1e-5
# A channel with fewer values has no scale of its own.
_ENOUGH = 64
# If nothing is detected, the threshold is halved up to 6 times, until 10 objects are detected, and left out only then, because
# the suppression of all candidates of 80 classes takes many seconds.
_OBJECTS, _HALVINGS = 10, 6

Run = Callable[[Tensor, Tensor | None], Sequence[Tensor]]  # image, threshold (None: the file's) -> results, candidates


def write(
    module: nn.Module,
    out: Path,
    size: Sequence[int],
    *,
    dynamic: bool = False,
    metadata: dict[str, str] | None = None,
    inputs: Sequence[Tensor] = (),
    tolerance: float = 5e-3,
) -> dict[tuple[int, ...], float]:
    """Write ``module``, a function of images ``[B, 3, H, W]``, to ``out`` if the file computes the same as the module.

    Args:
        module: :class:`Exportable` or :class:`EndToEnd`.
        out: the file; an earlier one stays if the export fails.
        size: H and W of the images, or (T, H, W) of clips; with ``dynamic`` only of the example from which the graph is recorded.
        dynamic: leave H and W free. The grids of the example must not be those of the pretraining size, which networks with
            position-dependent parameters treat apart.
        metadata: entries of the file.
        inputs: prepared images ``[1, 3, H, W]`` of other sizes on which the file is compared, too.
        tolerance: largest difference, see :func:`difference`. The default is a thousandth of the range of normally
            distributed values; files of honest networks reach 1.4e-3 (RTMDet).

    Returns:
        The difference at each compared size: ``size`` and those of ``inputs``; if H and W are free, :data:`OTHER_SIZES` and one
        for each condition of the recording that does not hold at these. A size that cannot be compared is a warning.

    Raises:
        UserError: the network cannot be converted, its results differ from call to call, or the file differs from it by more
            than ``tolerance`` or cannot be compared; PyTorch is older than 2.8.
    """
    # Older exporters fail on many of these networks.
    if torch.__version__ < "2.8":
        raise UserError(f"exports need PyTorch 2.8 or newer, this is {torch.__version__}")
    if dynamic and not can_be_free(module):
        raise UserError(
            "dynamic: deformable layers and align_corners=True keep the size of the example; take --size H W"
        )
    import onnx

    sizes = [tuple(size), *(OTHER_SIZES if dynamic else ())]
    # Not in inference mode, whose tensors cannot be constants of a graph.
    with torch.no_grad(), atomic_path(out) as file:
        images = examples(module, size)
        before, again = (module.named_outputs(images[:1]) for _ in range(2))
        if any(not difference(x, again[name]) <= ROUNDING for name, x in before.items()):
            raise UserError(f"{out} was not written: the model's results are not finite, or differ from call to call")
        count = sum(not name.startswith("candidate_") for name in before)
        shapes: dict[int, Any] = {2: Dim.DYNAMIC, 3: Dim.DYNAMIC} if dynamic else {}
        if isinstance(module, EndToEnd) and module.task != "detection":
            shapes |= {0: Dim.DYNAMIC}
        model, conditions = to_onnx(follow_sizes(module), images if 0 in shapes else images[:1], shapes, list(before))
        onnx.helper.set_model_props(model, metadata or {})
        onnx.save(model, file)
        run, batch = _open(file)
        differences = {}
        for each in sizes:
            advice = "" if each == sizes[0] else f"; {FIX_SIZE}"
            parts = examples(module, each).split(batch)
            differences[each] = _compare_all(module, run, parts, tolerance, f"{out} was not written", advice)
        for image in inputs:
            apart = _compare_all(module, run, [image], tolerance, f"{out} was not written")
            each = tuple(image.shape[2:])
            differences[each] = max(apart, differences.get(each, 0.0))
        unseen = []
        for each, new in conditions.sizes([*differences]) if dynamic else ():
            text = f"{each[0]}x{each[1]} (recorded where {list_conditions(new)})"
            if len(differences) >= _MOST_SIZES or math.prod(each) > _MOST_PIXELS or not _runs(module, each):
                unseen.append(text)
                continue
            parts = examples(module, each).split(batch)
            reason = f"{out} was not written: the recording depends on the size, {text}"
            differences[each] = _compare_all(module, run, parts, tolerance, reason, f"; {FIX_SIZE}")
        if unseen:
            warnings.warn(f"sizes not compared, at which the file may be wrong: {', '.join(unseen[:3])}", stacklevel=2)
        results = run(images[:batch], None)[:count]
        del run  # frees the memory of the runtime
        model.graph.value_info.extend(model.graph.output[count:])  # otherwise onnxruntime infers wrong shapes of splits
        del model.graph.output[count:], model.graph.input[1:]
        onnx.save(model, file)
        run, _ = _open(file)
        for expected, found in zip(results, run(images[:batch], None), strict=True):
            if not difference(expected, found) <= tolerance:
                raise UserError(f"{out} was not written: without its candidates, the graph has other results")
    return differences


def _compare_all(
    module: nn.Module, run: Run, images: Iterable[Tensor], tolerance: float, reason: str, advice: str = ""
) -> float:
    """Return the largest difference on images, see :func:`compare`; its error names ``reason``, the size and ``advice``."""
    largest = 0.0
    for image in images:
        try:
            largest = max(largest, compare(module, run, image, tolerance))
        except Exception as error:  # networks and runtimes fail in their own ways
            size = "x".join(map(str, image.shape[2:]))
            raise UserError(f"{reason}: at {size}, {shorten(str(error), 300)}{advice}") from error
    return largest


def _runs(module: nn.Module, size: Sequence[int]) -> bool:
    """Return whether the network itself takes images of a size."""
    try:
        module(examples(module, size)[:1])
    except Exception:  # networks fail in their own ways
        return False
    return True


def _open(file: Path) -> tuple[Run, int]:
    """Return an exported file as a function, and the number of images that it takes at once, at most 2."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def run(image: Tensor, threshold: Tensor | None) -> Sequence[Tensor]:
        inputs = {"image": image.numpy()}
        if threshold is not None:
            inputs[session.get_overridable_initializers()[0].name] = threshold.numpy()
        return [torch.from_numpy(array) for array in session.run(None, inputs)]

    batch = session.get_inputs()[0].shape[0]
    return run, batch if isinstance(batch, int) else 2


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

    If a detector finds nothing above its threshold, the comparison is repeated with lower ones.

    Raises:
        UserError: see :class:`Follower`; no values are returned; nothing is detected without a threshold either.
    """
    is_detector = getattr(module, "task", "") == "detection"
    everything = torch.tensor(NOTHING)
    lower = [*(module.threshold / 2**n for n in range(1, _HALVINGS + 1)), everything] if is_detector else []
    for threshold in (None, *lower):
        recorded = list(run(image, threshold))
        if threshold is not None and threshold is not everything and len(recorded[0]) < _OBJECTS:
            continue
        number = len(module.outputs) if isinstance(module, EndToEnd) else len(recorded)
        follow = Follower([*recorded[number:], *recorded[:number]], tolerance)
        results = module.predict(image, follow, threshold)
        for index, result in enumerate(results):
            follow(result, exact=is_detector and index < 3)  # masks come from layers behind the last choice
        if len(results[0]) if is_detector else any(result.numel() for result in results):
            return follow.largest
    what = "nothing is detected in a random image" if is_detector else "the network returns no values"
    raise UserError(f"{what}, so that the file cannot be compared")


@torch.no_grad()
def padding_effect(module: EndToEnd, size: Sequence[int]) -> tuple[float, float]:
    """Return the mean and the largest change of each map, over its range, if an image of half the height is padded.

    Args:
        module: its model takes images of any size.
        size: H and W of the padded image, which is random.
    """
    prepare, network = module.preprocess, Exportable(module.model)
    coarse = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 4 - 2
    image = F.interpolate(coarse, (max(size[0] // 64 * 32, min(32, size[0])), size[1]), mode="bilinear")
    maps = []
    for height in (image.shape[2], size[0]):  # without and with the padding, each rounded up to the divisor
        pads = (0, -size[1] % prepare.divisor, 0, height - image.shape[2] + -height % prepare.divisor)
        maps.append(network(F.pad(image, pads, value=prepare.value)))
    changes = [(x - y[..., : x.shape[2], : x.shape[3]]).abs() / (x.max() - x.min()) for x, y in zip(*maps, strict=True)]
    return torch.stack([each.mean() for each in changes]).mean().item(), max(each.max().item() for each in changes)
