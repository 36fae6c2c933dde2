"""Models as ONNX files, compared with the model they come from."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from mmlisa.checkpoints import atomic_path
from mmlisa.errors import UserError

from .compare import ROUNDING, Run, compare, difference, examples
from .graph import FIX_SIZE, can_be_free, to_onnx
from .whole import EndToEnd, follow_sizes

# The size of the example if the network takes any: no side is a usual size of pretraining.
EXAMPLE = (160, 288)


def write(
    module: nn.Module,
    out: Path,
    size: Sequence[int],
    *,
    dynamic: bool = False,
    metadata: dict[str, str] | None = None,
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
        tolerance: largest difference, see :func:`compare.difference`. The default is a thousandth of the range of normally
            distributed values; files of honest networks reach 1.4e-3 (RTMDet).

    Returns:
        The difference at each compared size: ``size``, and others if H and W are free.

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

    # The usual size of pretraining, and sides that are odd at every stride.
    sizes = [tuple(size), *([(224, 224), (129, 225)] if dynamic else [])]
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
        model = to_onnx(follow_sizes(module), images if 0 in shapes else images[:1], shapes, list(before))
        onnx.helper.set_model_props(model, metadata or {})
        onnx.save(model, file)
        run, batch = _open(file)
        differences = {}
        for each in sizes:
            try:
                parts = examples(module, each).split(batch)
                differences[each] = max(compare(module, run, part, tolerance) for part in parts)
            except Exception as error:  # networks and runtimes fail in their own ways
                reason = f"at {'x'.join(map(str, each))}, {shorten(str(error), 300)}"
                advice = "" if each == sizes[0] else f"; {FIX_SIZE}"
                raise UserError(f"{out} was not written: {reason}{advice}") from error
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


def _open(file: Path) -> tuple[Run, int]:
    """Return an exported file as a function, and the number of images that it takes at once, at most 2."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def run(image: Tensor, thresholds: Tensor | None) -> Sequence[Tensor]:
        inputs = {"image": image.numpy()}
        if thresholds is not None:
            inputs[session.get_overridable_initializers()[0].name] = thresholds.numpy()
        return [torch.from_numpy(array) for array in session.run(None, inputs)]

    batch = session.get_inputs()[0].shape[0]
    return run, batch if isinstance(batch, int) else 2
