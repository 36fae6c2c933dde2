"""Models as ONNX files and as ``torch.export`` programs, compared with the model they come from."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

import torch
from torch import nn
from torch.export import Dim

from mmlisa.checkpoints.writing import writing_whole

from .compare import depends_on_rounding, example, largest_difference, open_file
from .graph import FIX_SIZE, can_be_free, multiples_of, record, to_onnx
from .whole import EndToEnd

# The size of the example if the network takes any: no side is a usual size of pretraining.
EXAMPLE = (160, 288)


def write(
    module: nn.Module,
    out: Path,
    size: Sequence[int],
    *,
    dynamic: bool = False,
    metadata: dict[str, str] | None = None,
    tolerance: float = 1e-3,
) -> dict[tuple[int, ...], float | None]:
    """Write ``module``, a function of images ``[B, 3, H, W]``, to ``out`` if the file gives the same as the module.

    Args:
        module: :class:`Exportable` or :class:`EndToEnd`.
        out: ``.onnx`` (opset 18) or ``.pt2`` (``torch.export``).
        size: H and W of the images, or (T, H, W) of clips; with ``dynamic`` only of the example from which the graph is recorded.
        dynamic: leave H and W free. The grids of the example must not be those of the pretraining size, which networks with
            position-dependent parameters treat apart.
        metadata: entries of the file.
        tolerance: largest difference, see :func:`largest_difference`.

    Returns:
        The difference at each compared size: ``size``, and others if H and W are free. None if nothing is detected, or if
        rounding decides what is, so that the comparison tells nothing.

    Raises:
        ValueError: another suffix, a network that cannot be converted, or a larger difference; an earlier file stays.
        ImportError: PyTorch before 2.8, whose exporters fail on many of these networks.
    """
    if torch.__version__ < "2.8":
        raise ImportError(f"exports need PyTorch 2.8 or newer, this is {torch.__version__}")
    if out.suffix not in (".onnx", ".pt2"):
        raise ValueError(f"out={str(out)!r} has the suffix {out.suffix!r}; it must be .onnx or .pt2")
    sizes = [tuple(size)]
    if dynamic and not can_be_free(module):
        raise ValueError(
            "dynamic: deformable layers and align_corners=True keep the size of the example; take --size H W"
        )
    if dynamic:
        # The usual size of pretraining, and sides that are odd at every stride; of a detector odd sides with a narrow border:
        # in a wide one all scores are equal, and rounding decides which of them are kept. A .pt2 program takes multiples of
        # the size divisor only.
        odd = (123, 219) if getattr(module, "task", "") == "detection" else (129, 225)
        sizes += [(224, 224), odd if out.suffix == ".onnx" else (352, 96)]
    with torch.no_grad():  # not in inference mode: its tensors cannot become constants of a graph
        image, shapes = example(module, size), {}
        if isinstance(module, EndToEnd) and module.task != "detection":
            image, shapes = image.repeat(2, *[1] * (image.ndim - 1)), {0: Dim.DYNAMIC}
        if dynamic:
            shapes |= {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
        with writing_whole(out) as file:
            if out.suffix == ".pt2":
                program = record(module, (image,), multiples_of(module, shapes))
                torch.export.save(program, file, extra_files=metadata or {})
            else:
                import onnx

                proto = to_onnx(module, image, shapes)
                onnx.helper.set_model_props(proto, metadata or {})
                onnx.save(proto, file)
            file.flush()
            run = open_file(file.name, out.suffix)
            differences = {}
            for each in sizes:
                try:
                    difference = largest_difference(module, run, each)
                    if difference is not None and difference > tolerance:
                        # A detector may have two nearly equal scores, whose order is another in the file: the median of three.
                        others = [largest_difference(module, run, each, seed) for seed in (1, 2)]
                        found = [difference, *(other for other in others if other is not None)]
                        difference = torch.tensor(found).median().item()
                    differences[each] = difference
                except Exception as error:  # networks and runtimes fail in their own ways
                    reason = shorten(str(error), 200)
                    raise ValueError(f"the model or {out} fails at {each}: {reason}; {FIX_SIZE}") from error
                if difference is not None and not difference <= tolerance:  # also NaN
                    if depends_on_rounding(module, each, tolerance):
                        differences[each] = None
                        continue
                    raise ValueError(
                        f"{out} differs from the model by {difference:.1e} at {each}, more than tolerance={tolerance:.1e}; "
                        f"it was not written{f'; {FIX_SIZE}' if each != sizes[0] else ''}"
                    )
    return differences
