"""Models as ONNX files and as ``torch.export`` programs, compared with the model they come from."""

import json
import logging
import traceback
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from inspect import signature
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, fx, nn
from torch.export import Dim

from mmlisa import __version__
from mmlisa.checkpoints.writing import writing_whole
from mmlisa.deploy import runtime
from mmlisa.deploy.results import DeformableAttention, EndToEnd, clips_boxes, rtmdet_ins
from mmlisa.ops.tracing import divide_up
from mmlisa.training.config import find_metainfo, find_test_pipeline, innermost_dataset, type_name
from mmlisa.visualization.overlays import Classes

OPSET = 18
# The size of the example if the network takes any: no side is a usual size of pretraining.
EXAMPLE = (160, 288)
# Some networks take multiples of a number only.
_FIX_SIZE = "take --size H W, or, for a segmentor, --cfg-options model.data_preprocessor.test_cfg.size_divisor=32"
# Steps of a test pipeline that do not change the image.
_NEUTRAL = ("LoadImageFromFile", "LoadAnnotations", "PackDetInputs", "PackSegInputs", "PackInputs")


class Exportable(nn.Module):
    """``forward(image: [B, 3, H, W])`` -> maps, for a normalised and padded image.

    A classifier gives its scores, a segmentor its logits. A detector gives the maps of its head, of its region proposals if it
    has two stages, or of its neck if its head is a transformer. With ``backbone_only``, a model gives the maps of its backbone.
    """

    def __init__(self, model: nn.Module, backbone_only: bool = False) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.backbone_only = backbone_only

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.named_outputs(image).values())

    def named_outputs(self, image: Tensor) -> dict[str, Tensor]:
        """Return the outputs by name.

        They are ``scores_0``, ``boxes_0`` and ``factors_0`` of the first level of a dense head and so on, as the head returns
        them before any activation, ``logits`` of a segmentor, ``scores`` of a classifier, or ``map_0`` and so on.
        """
        model = self.model
        if not self.backbone_only and hasattr(model, "encode_decode"):
            return dict(logits=model.encode_decode(image, [dict(img_shape=image.shape[2:])]))
        found = model.backbone(image) if self.backbone_only else model.extract_feat(image)
        # Transformer heads take queries and not maps.
        head = next((getattr(model, name) for name in ("rpn_head", "bbox_head", "head") if hasattr(model, name)), None)
        if head is not None and not self.backbone_only and not hasattr(model, "decoder"):
            found = head(found)
            if isinstance(found, Tensor):
                return dict(scores=found)
            if len(found) in (2, 3) and all(isinstance(part, list | tuple) for part in found):
                parts = zip(("scores", "boxes", "factors"), found, strict=False)
                return {f"{name}_{level}": x for name, levels in parts for level, x in enumerate(levels)}
        return {f"map_{number}": x for number, x in enumerate(_tensors(found))}


def _tensors(x: Any) -> list[Tensor]:
    """Return the tensors of nested sequences, in order."""
    return [x] if isinstance(x, Tensor) else [tensor for part in x for tensor in _tensors(part)]


def reading_steps(cfg: Config) -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a config's test pipeline that change the image: keys of :data:`runtime.STEPS` with their options.

    Raises:
        ValueError: a step or an option that the runtime does not have, a step after ``Pad``, or no test pipeline.
    """
    steps: list[tuple[str, dict[str, Any]]] = []
    for step in find_test_pipeline(cfg):
        name = type_name(step)
        if name in _NEUTRAL and step.get("color_type", "color") == "color":
            continue
        options = {key: value for key, value in step.items() if key != "type" and value not in (None, False)}
        try:
            signature(runtime.STEPS[name]).bind(None, **options)
            is_known = not steps or steps[-1][0] != "Pad"
        except (KeyError, TypeError):
            is_known = False
        if not is_known:
            raise ValueError(
                f"the runtime does not have the step {dict(step)} of the test pipeline; --raw exports the network alone"
            )
        steps.append((name, options))
    return steps


def final_size(cfg: Config, module: EndToEnd) -> tuple[int, ...] | None:
    """Return H and W of every image that the test pipeline returns (T, H and W of a clip), or None if they differ.

    Raises:
        ValueError: see :func:`reading_steps`; a padding of a segmentor.
    """
    if module.task == "video":
        return tuple(module.model.backbone.image_size)
    steps = reading_steps(cfg)
    name, options = steps[-1] if steps else ("", {})
    if name == "Pad" and module.task == "segmentation":
        raise ValueError(
            "step Pad of the test pipeline: MMSegmentation stretches padded maps, and the runtime does not"
        )
    if options.get("pad_to_square") and len(steps) > 1:  # after a Resize to a square, as in YOLOX
        options = steps[-2][1] | {"keep_ratio": False}
    size = options.get("scale" if "scale" in options else "crop_size" if name == "CenterCrop" else "size")
    size = options["crop_size"] if name == "EfficientNetCenterCrop" else size
    if size is None or name == "ResizeEdge" or options.get("keep_ratio"):
        return None
    width, height = [size, size] if isinstance(size, int) else size
    return None if name == "Pad" and width != height else (height, width)  # an image may be higher than wide


def describe(cfg: Config, module: EndToEnd, metainfo: dict[str, Any]) -> dict[str, str]:
    """Return the metadata of a file for :mod:`mmlisa.deploy.runtime`, JSON by key.

    ``metainfo`` holds the names of the classes; if it is empty, the test data have them.
    """
    prepare = module.preprocess
    head = getattr(module.model, "roi_head", None) or getattr(module.model, "bbox_head", None)
    test_cfg = getattr(head, "test_cfg", None) or {}
    names = Classes(metainfo or find_metainfo(innermost_dataset(cfg, "test"))).names
    steps = [] if module.task == "video" else reading_steps(cfg)
    pads = bool(steps) and steps[-1][0] == "Pad"
    entries = dict(
        format=runtime.FORMAT,
        task=module.task,
        classes=list(names),
        mean=prepare.mean.flatten().tolist(),
        std=prepare.std.flatten().tolist(),
        channels="RGB" if prepare.is_rgb else "BGR",
        uint8=prepare.uint8,
        least=prepare.least,
        border=(prepare.mean + prepare.value * prepare.std).flatten().tolist(),
        steps=steps,
        score_threshold=0.3,
        # MMDetection takes an image that its pipeline has padded for the whole.
        clip=module.task == "detection" and clips_boxes(head) and not pads,
        align_corners=getattr(module.model, "align_corners", False),
        mask_threshold=test_cfg.get("mask_thr_binary", 0.5),
        # RTMDet-Ins has masks of the whole image, all others of the box.
        mask_stride=head.prior_generator.strides[0][0] if getattr(module, "detect", None) is rtmdet_ins else 0,
        config=Path(cfg.filename or "").name,
        version=__version__,
    )
    return {f"mmlisa_{key}": json.dumps(value) for key, value in entries.items()}


def export(
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
                program = _record(module, (image,), _multiples(module, shapes))
                torch.export.save(program, file, extra_files=metadata or {})
            else:
                import onnx

                proto = _to_onnx(module, image, shapes)
                onnx.helper.set_model_props(proto, metadata or {})
                onnx.save(proto, file)
            file.flush()
            run = _load(file.name, out.suffix)
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
                    raise ValueError(f"the model or {out} fails at {each}: {reason}; {_FIX_SIZE}") from error
                if difference is not None and not difference <= tolerance:  # also NaN
                    if _depends_on_rounding(module, each, tolerance):
                        differences[each] = None
                        continue
                    raise ValueError(
                        f"{out} differs from the model by {difference:.1e} at {each}, more than tolerance={tolerance:.1e}; "
                        f"it was not written{f'; {_FIX_SIZE}' if each != sizes[0] else ''}"
                    )
    return differences


def example(module: nn.Module, size: Sequence[int], seed: int = 0) -> Tensor:
    """Return a random, smooth image of the dtype that ``module`` takes; smooth, because noise has no objects."""
    coarse = torch.rand(1, 3, *(4,) * len(size), generator=torch.Generator().manual_seed(seed))
    mode = "bicubic" if len(size) == 2 else "trilinear"
    image = nn.functional.interpolate(coarse, tuple(size), mode=mode).clamp(0, 1)
    if isinstance(module, EndToEnd) and module.preprocess.uint8:
        return (image * 255).to(torch.uint8)
    return image * 4 - 2


def _multiples(module: nn.Module, shapes: dict[int, Any]) -> dict[int, Any]:
    """Return free sizes as multiples of the divisor of ``module``."""
    divisor = module.preprocess.divisor if isinstance(module, EndToEnd) else 1
    if divisor == 1 or 2 not in shapes:
        return shapes
    return shapes | {2: divisor * Dim("h", min=2), 3: divisor * Dim("w", min=2)}


def _record(module: nn.Module, inputs: tuple[Tensor, ...], shapes: dict[int, Any]) -> torch.export.ExportedProgram:
    """Record the graph of a module whose first input has free axes; a batch that cannot be free is 1.

    Raises:
        ValueError: PyTorch cannot record it; the message names the innermost layer.
    """
    try:
        return torch.export.export(module, inputs, dynamic_shapes=(shapes or None, None)[: len(inputs)], strict=False)
    except Exception as error:  # each layer fails in its own way
        if 0 in shapes:  # a layer may take the size of the batch for a constant
            return _record(module, (inputs[0][:1], *inputs[1:]), {axis: dim for axis, dim in shapes.items() if axis})
        owners = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
        layers = [owner for owner in owners if isinstance(owner, nn.Module) and not isinstance(owner, fx.GraphModule)]
        advice = f"{_FIX_SIZE}; " if 2 in shapes else ""
        reason = f"{type([module, *layers][-1]).__name__}: {shorten(str(error), 200)}"
        raise ValueError(
            f"PyTorch cannot record {reason}; {advice}--raw writes the network without its results"
        ) from error


def _to_onnx(module: nn.Module, image: Tensor, shapes: dict[int, Any]) -> Any:
    """Return the graph of a module as an ONNX model."""
    outputs = module.outputs if isinstance(module, EndToEnd) else list(module.named_outputs(image))
    multiples = _multiples(module, shapes)
    if multiples is shapes:
        return _convert(_record(module, (image,), shapes), ["image"], outputs)
    # The network is recorded on multiples of the divisor: with sizes rounded up inside, PyTorch's symbols grow until the
    # recording takes hours. The padding is a graph before it.
    from onnx import compose

    network = _convert(_record(module, module.preprocess(image), multiples), ["padded", "limits"], outputs)
    before = _convert(_record(module.preprocess, (image,), shapes), ["image"], ["padded", "limits"])
    network = compose.add_prefix(network, "network/", rename_inputs=False, rename_outputs=False)
    merged = compose.merge_models(before, network, [("padded", "padded"), ("limits", "limits")])
    del merged.opset_import[1:]  # both graphs have the same
    return merged


def deform_conv2d(x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *geometry: int) -> Tensor:
    """torchvision's deformable convolution (https://arxiv.org/abs/1811.11168) by ``grid_sample``, which ONNX has at opset 18.

    ``x [B, C, H, W]``, ``offset [B, 2 G K, H', W']`` (y and x of each of the K kernel points) -> ``[B, O, H', W']``.
    ``geometry``: stride, padding and dilation (two each), groups, offset groups G, and whether ``mask`` counts.
    """
    *geometry, groups, offset_groups, use_mask = geometry
    kernel, count = weight.shape[2:], weight.shape[2:].numel()
    points = torch.arange(count, device=x.device)[:, None, None]
    shift = offset.unflatten(1, (offset_groups, count, 2)).unbind(3)
    grid = []
    for axis, point in ((1, points % kernel[1]), (0, points // kernel[1])):
        stride, padding, dilation = geometry[axis::2]
        step = torch.arange(offset.shape[2 + axis], device=x.device) * stride - padding
        place = shift[axis] + point * dilation + (step if axis else step[:, None])
        grid.append((2 * place + 1) / x.shape[2 + axis] - 1)
    grid = torch.stack(grid, dim=-1).flatten(0, 1).flatten(1, 2)
    maps = x.unflatten(1, (offset_groups, -1)).flatten(0, 1)
    sampled = nn.functional.grid_sample(maps, grid, align_corners=False)
    sampled = sampled.unflatten(0, (-1, offset_groups)).unflatten(3, (count, -1))  # [B, G, C / G, K, H', W']
    if use_mask:
        sampled = sampled * mask.unflatten(1, (offset_groups, 1, -1))
    weight = weight.flatten(1)[:, :, None, None]
    return nn.functional.conv2d(sampled.flatten(1, 3), weight, bias, groups=groups)


def adaptive_max_pool2d(x: Tensor, sides: Sequence[int]) -> tuple[Tensor, Tensor]:
    """``nn.AdaptiveMaxPool2d`` by indexing, which ONNX has: window i of n along an axis is floor(i L / n) to ceil((i + 1) L / n).

    The second result stands for the indices of the maxima, which are not computed.
    """
    for axis, side in zip((2, 3), sides, strict=True):
        size, window = x.shape[axis], torch.arange(side, device=x.device)
        start, end = window * size // side, divide_up((window + 1) * size, side)
        taps = torch.arange(divide_up(size, side) + 1, device=x.device)  # a window may begin and end within a token
        index = torch.minimum(start[:, None] + taps, end[:, None] - 1)
        x = x.index_select(axis, index.flatten()).unflatten(axis, (side, -1)).amax(axis + 1)
    return x, torch.zeros_like(x, dtype=torch.long)


def merge_equal(graph: fx.Graph) -> None:
    """Merge equal nodes that follow from sizes alone, such as the Fourier matrices of all layers: a node takes ms to convert.

    The graph stays as it is if one of these tensors is changed in place.
    """
    known = {}
    for node in graph.nodes:
        others = [each.meta.get("val") for each in node.all_input_nodes if each not in known]
        if node.op == "call_function" and all(isinstance(value, torch.types.py_sym_types) for value in others):
            if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
                return
            known[node] = None
    first = {}
    for node in known:
        kept = first.setdefault((node.target, str(node.args), str(node.kwargs)), node)
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)


def _convert(program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    merge_equal(program.graph)
    aten = torch.ops.aten
    replaced = {
        torch.ops.torchvision.deform_conv2d.default: deform_conv2d,
        aten.adaptive_max_pool2d.default: adaptive_max_pool2d,
    }
    remainders = program.graph.find_nodes(op="call_function", target=aten.remainder.Scalar)
    # The exporter converts remainders of integers by numbers only, not by the side of a map.
    if any(isinstance(node.args[1], fx.Node) and not node.meta["val"].is_floating_point() for node in remainders):
        replaced[aten.remainder.Scalar] = lambda x, side: x - x // side * side
    if any(node.target in replaced for node in program.graph.nodes):
        for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.type_as.default):
            # The exporter fails on a second name of a weight.
            if node.args[0].meta["val"].dtype == node.meta["val"].dtype:
                node.replace_all_uses_with(node.args[0])
                program.graph.erase_node(node)
        program = program.run_decompositions(replaced)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Runtimes simplify what they load; the exporter takes minutes for that.
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                optimize=False,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = shorten(str(error.__cause__ or error), 200)
            raise ValueError(f"PyTorch cannot convert this network to ONNX; write a .pt2 file: {reason}") from error
    from onnx import inliner

    # onnxruntime does not fold CastLike, and behind it neither the biases of convolutions nor their batch norms. Its definition,
    # a Cast, is folded.
    model = inliner.inline_selected_functions(exported.model_proto, [("", "CastLike")], inline_schema_functions=True)
    for node in model.graph.node:
        del node.metadata_props[:]  # PyTorch's stack traces, megabytes
    return model


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
        expected, found = _tensors(module(image)), _tensors(run(image))
    if isinstance(module, EndToEnd) and module.task == "detection":
        if not len(expected[0]) and not len(found[0]):
            return None
        differences = [_unmatched(expected, found, max(size)), _unmatched(found, expected, max(size))]
    else:
        pairs = zip(found, expected, strict=True)
        differences = [(f - e).abs().max() / e.abs().max().clamp_min(1e-12) for f, e in pairs]
    return torch.tensor(differences).max().item()  # Python's max can drop a NaN


def _depends_on_rounding(module: nn.Module, size: Sequence[int], tolerance: float) -> bool:
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


def _load(file: str, suffix: str) -> Callable[[Tensor], Any]:
    """Return an exported file as a function of an image."""
    if suffix == ".pt2":
        return torch.export.load(file).module()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda image: [torch.from_numpy(array) for array in session.run(None, {"image": image.numpy()})]


def can_be_free(module: nn.Module) -> bool:
    """Return whether the graph of a model can leave H and W free.

    mmcv's deformable convolutions and mmseg's ``resize`` with aligned corners compute sizes by ``int()``.
    """
    parts = [part for part in module.modules() if not isinstance(part, nn.Upsample)]
    if any(isinstance(part, DeformableAttention) or getattr(part, "align_corners", False) for part in parts):
        return False
    return not any("DeformConv2d" in type(part).__name__ or type(part).__name__ == "TOODHead" for part in parts)
