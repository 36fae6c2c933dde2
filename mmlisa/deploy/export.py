"""Models as ONNX files and as ``torch.export`` programs, checked against the model they come from."""

import json
import logging
import subprocess
import warnings
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.export import Dim

from mmlisa import __version__
from mmlisa.deploy import runtime
from mmlisa.deploy.results import DeformableAttention, Results, WithResults, yolox
from mmlisa.options import check_exported
from mmlisa.training.config import find_metainfo, find_test_pipeline, innermost_dataset, type_name
from mmlisa.visualization.overlays import Classes

OPSET = 18
# The size of the example if the network takes any: no side is a usual size of pretraining.
EXAMPLE = (160, 288)
# Interpolations of the runtime by backend.
_METHODS = {
    "cv2": ("bilinear", "bicubic"),
    "pillow": ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
}
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
        model = self.model
        if self.backbone_only:
            return tuple(_tensors(model.backbone(image)))
        if hasattr(model, "encode_decode"):
            return (model.encode_decode(image, [dict(img_shape=image.shape[2:])]),)
        features = model.extract_feat(image)
        # Transformer heads take queries and not maps.
        head = next((getattr(model, name) for name in ("rpn_head", "bbox_head", "head") if hasattr(model, name)), None)
        takes_maps = head is not None and not hasattr(model, "decoder")
        return tuple(_tensors(head(features) if takes_maps else features))


def _tensors(x: Any) -> list[Tensor]:
    """The tensors of nested sequences, in order."""
    return [x] if isinstance(x, Tensor) else [tensor for part in x for tensor in _tensors(part)]


def reading_steps(cfg: Config) -> list[dict[str, Any]]:
    """The resizing steps of a config's test pipeline, as the runtime takes them.

    Raises:
        ValueError: a step that the runtime does not have, or no test pipeline.
    """
    steps, pipeline = [], find_test_pipeline(cfg)
    resizes = any("Resize" in type_name(step) for step in pipeline)
    for step in pipeline:
        name = type_name(step)
        if _ends_with_padding(steps) and name not in _NEUTRAL:
            raise ValueError(
                f"step {dict(step)} of the test pipeline changes the image after Pad, which the runtime does not; --raw exports "
                "the network alone"
            )
        sampling = dict(method=step.get("interpolation", "bilinear"), backend=step.get("backend", "cv2"))
        if sampling["method"] not in _METHODS.get(sampling["backend"], ()):
            raise ValueError(
                f"step {dict(step)} of the test pipeline: the runtime resizes by {', '.join(_METHODS['cv2'])}, and with "
                f"backend='pillow' by {', '.join(_METHODS['pillow'])}; --raw exports without it"
            )
        if name == "Resize" and "scale" in step:
            scale = [step["scale"]] * 2 if isinstance(step["scale"], int) else list(step["scale"])
            steps.append(dict(step="resize", scale=scale, keep_ratio=step.get("keep_ratio", False), **sampling))
        elif name == "ResizeEdge":
            steps.append(dict(step="resize_edge", scale=step["scale"], edge=step.get("edge", "short"), **sampling))
        elif name == "CenterCrop" and not step.get("auto_pad"):
            size = step["crop_size"]
            steps.append(dict(step="crop", size=[size, size] if isinstance(size, int) else list(size)))
        elif name == "Pad" and (padding := _read_padding(step, steps)):
            steps.append(padding)
        elif (
            name not in _NEUTRAL
            or step.get("color_type", "color") != "color"
            or step.get("imdecode_backend") == "tifffile"  # its colours are in another order, and 16 bits stay
            or (step.get("to_float32") and resizes)  # resized floats are not rounded
        ):
            raise ValueError(
                f"the runtime does not have the step {dict(step)} of the test pipeline; --raw exports the network alone"
            )
    return steps


def _read_padding(step: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Read a step ``Pad`` that follows other steps: the size (W, H) of the padded images and the value (B, G, R) of the border.

    None for another mode, a size that depends on the image, or a value that mmcv gives to one channel only.
    """
    size, last = step.get("size"), steps[-1] if steps else {}
    if step.get("pad_to_square") and last.get("step") == "resize" and len({*last["scale"]}) == 1:
        size = last["scale"]  # the longer side has this length
    value = step.get("pad_val", 0)
    value = value.get("img", 0) if isinstance(value, dict) else value
    value = [value] * 3 if isinstance(value, int) else value
    is_constant = step.get("padding_mode", "constant") == "constant" and not isinstance(value, float)
    if not size or step.get("size_divisor") or not is_constant:
        return None
    return dict(step="pad", size=list(size), value=list(value))


def _ends_with_padding(steps: list[dict[str, Any]]) -> bool:
    return bool(steps) and steps[-1]["step"] == "pad"


def final_size(cfg: Config, results: Results) -> tuple[int, ...] | None:
    """H and W of every image that the test pipeline returns (T, H and W of a clip), or None if they differ."""
    if results.task == "video":
        return tuple(results.model.backbone.image_size)
    steps = reading_steps(cfg)
    if not steps or steps[-1]["step"] == "resize_edge" or steps[-1].get("keep_ratio"):
        return None
    if _ends_with_padding(steps):
        if results.task == "segmentation":
            raise ValueError(
                "step Pad of the test pipeline: MMSegmentation stretches the padded maps over the image, and the runtime does "
                "not; pad by model.data_preprocessor.test_cfg instead, or export with --raw"
            )
        before = steps[-2] if len(steps) > 1 else {}
        sides = before["scale"] if before.get("step") == "resize" else before.get("size", [inf])
        if max(sides) > min(steps[-1]["size"]):  # in one of the two orientations, an image may be larger
            return None
    width, height = steps[-1].get("scale") or steps[-1]["size"]
    return height, width


def describe(cfg: Config, model: WithResults, metainfo: dict[str, Any]) -> dict[str, str]:
    """The metadata of a file, JSON by key: what :mod:`mmlisa.deploy.runtime` has to know.

    ``metainfo`` holds the names of the classes; if it is empty, the test data have them.
    """
    prepare, results = model
    test_cfg = results.model.roi_head.test_cfg if "masks" in results.outputs else {}
    names = Classes(metainfo or find_metainfo(innermost_dataset(cfg, "test"))).names
    steps = [] if results.task == "video" else reading_steps(cfg)
    least, border = prepare.least, (prepare.mean + prepare.value * prepare.std).flatten().tolist()
    if pads := _ends_with_padding(steps):
        *steps, padding = steps
        least, border = padding["size"][::-1], padding["value"][:: -1 if prepare.is_rgb else 1]
    entries = dict(
        format=runtime.FORMAT,
        task=results.task,
        outputs=results.outputs,
        classes=list(names),
        mean=prepare.mean.flatten().tolist(),
        std=prepare.std.flatten().tolist(),
        channels="RGB" if prepare.is_rgb else "BGR",
        uint8=prepare.uint8,
        divisor=prepare.divisor,
        least=least,
        border=border,
        steps=steps,
        score_threshold=0.3,
        # MMDetection leaves YOLOX's boxes as they are, and takes an image that its pipeline has padded for the whole.
        clip=results.task == "detection" and results.detect is not yolox and not pads,
        mask_threshold=test_cfg.get("mask_thr_binary", 0.5),
        config=Path(cfg.filename or "").name,
        version=__version__,
        commit=_commit(),
    )
    return {f"mmlisa_{key}": json.dumps(value) for key, value in entries.items()}


def _commit() -> str | None:
    """The commit of this clone; None for an installed package, also one inside another repository."""
    root = Path(__file__).resolve().parents[2]
    command = ["git", "-C", str(root), "rev-parse", "HEAD", "--show-toplevel"]
    try:
        commit, top = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n", 1)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit if Path(top.strip()) == root else None


def export(
    module: nn.Module,
    out: Path,
    size: Sequence[int],
    *,
    dynamic: bool = False,
    metadata: dict[str, str] | None = None,
) -> None:
    """Write ``module``, a function of images ``[B, 3, H, W]``, to ``out``.

    Args:
        module: :class:`Exportable` or :class:`WithResults`.
        out: ``.onnx`` (opset 18) or ``.pt2`` (``torch.export``).
        size: H and W of the images, or (T, H, W) of clips; with ``dynamic`` only of the example from which the graph is recorded.
        dynamic: leave H and W free. The grids of the example must not be those of the pretraining size, which networks with
            position-dependent parameters treat apart.
        metadata: entries of the file.

    Raises:
        ValueError: another suffix, a missing folder, or ``dynamic`` for a network that fixes H or W.
        ImportError: PyTorch before 2.8, whose exporters fail on many of these networks.
    """
    if torch.__version__ < "2.8":
        raise ImportError(
            f"exports need PyTorch 2.8 or newer, this is {torch.__version__}; everything else runs with it"
        )
    check_exported("out", out)
    image = example(module, size)
    free: dict[int, Any] = {2: Dim.DYNAMIC, 3: Dim.DYNAMIC} if dynamic else {}
    prepare, results = module if isinstance(module, WithResults) else (None, None)
    if results is not None and results.task != "detection":
        image, free[0] = image.repeat(2, *[1] * (image.ndim - 1)), Dim.AUTO
    if dynamic and any(isinstance(part, DeformableAttention) for part in module.modules()):
        raise ValueError(
            "dynamic: the graphs of DINO, Deformable DETR and Mask2Former keep the size of the example; take --size H W"
        )
    names, metadata = getattr(results, "outputs", None), metadata or {}
    divisor = prepare.divisor if prepare is not None and dynamic else 1
    multiples = free | {2: divisor * Dim("h", min=2), 3: divisor * Dim("w", min=2)} if divisor > 1 else {}
    with torch.no_grad():  # not in inference mode: its tensors cannot become constants of a graph
        if out.suffix == ".pt2":
            shapes = multiples or free
            program = _record(module, (image,), {"image": shapes} if shapes else None)
            torch.export.save(program, out, extra_files=metadata)
            return
        if multiples:
            # The network is recorded on multiples of the divisor: with sizes rounded up inside, PyTorch's symbols grow
            # until the recording takes hours. The padding is a graph of its own before it.
            shapes = {"image": multiples, "limits": None}
            network = _to_onnx(results, prepare(image), shapes, ["padded", "limits"], names)
            before = _to_onnx(prepare, (image,), {"image": free}, ["image"], ["padded", "limits"])
            from onnx import compose

            network = compose.add_prefix(network, "network/", rename_inputs=False, rename_outputs=False)
            proto = compose.merge_models(before, network, [("padded", "padded"), ("limits", "limits")])
            del proto.opset_import[1:]  # of both graphs, the same
        else:
            proto = _to_onnx(module, (image,), {"image": free} if free else None, ["image"], names)
    import onnx

    onnx.helper.set_model_props(proto, metadata)
    onnx.save(proto, out)


def example(module: nn.Module, size: Sequence[int]) -> Tensor:
    """A random, smooth image of the dtype that ``module`` takes; smooth, because noise has no objects."""
    coarse = torch.rand(1, 3, *(4,) * len(size))
    mode = "bicubic" if len(size) == 2 else "trilinear"
    image = nn.functional.interpolate(coarse, tuple(size), mode=mode).clamp(0, 1)
    if isinstance(module, WithResults) and module[0].uint8:
        return (image * 255).to(torch.uint8)
    return image * 4 - 2


def _record(module: nn.Module, inputs: tuple[Tensor, ...], shapes: Any) -> torch.export.ExportedProgram:
    refusal = "dynamic: H and W of this network cannot be left free from this example; take "
    try:
        program = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        is_mistake = isinstance(error, AttributeError | LookupError | NameError | TypeError)  # in the model's code
        if not shapes or is_mistake:
            raise
        raise ValueError(
            f"{refusal}one of another size than the pretraining one, or export one file per size. "
            f"PyTorch says: {str(error).strip().splitlines()[0]}"
        ) from error
    # PyTorch fixes a free size without a word, for example if the last map of a pyramid is one pixel high.
    taken = next(
        node.meta["val"] for node in program.graph.nodes if node.name == program.graph_signature.user_inputs[0]
    )
    if shapes and any(isinstance(taken.shape[axis], int) for axis in shapes["image"].keys() - {0}):
        raise ValueError(f"{refusal}a larger one than {'x'.join(map(str, inputs[0].shape[2:]))}")
    return program


def _to_onnx(
    module: nn.Module, inputs: tuple[Tensor, ...], shapes: Any, names: Sequence[str], outputs: Sequence[str] | None
) -> Any:
    """The graph of a module as an ONNX model."""
    program = _record(module, inputs, shapes)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Runtimes simplify what they load; the exporter takes minutes for that.
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(names),
                output_names=outputs and list(outputs),
                optimize=False,
                verbose=False,
            )
        except Exception as error:
            remedy = "leave H and W fixed, or write a .pt2 file" if shapes else "write a .pt2 file"
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            raise ValueError(f"PyTorch cannot convert this network to ONNX; {remedy}. Its reason: {reason}") from error
    from onnx import inliner

    # onnxruntime does not fold CastLike, and behind it neither the biases of convolutions nor their batch norms. Its definition,
    # a Cast, is folded.
    return inliner.inline_selected_functions(exported.model_proto, [("", "CastLike")], inline_schema_functions=True)


def largest_difference(module: nn.Module, out: Path, size: Sequence[int]) -> float | None:
    """The largest difference between ``module`` and its export ``out`` on a random image, over each output's largest value.

    Detections are compared with the nearest one of their label, masks included.

    Returns:
        The difference; NaN if an output is NaN; None if neither detects anything in the image, so that nothing was compared.

    Raises:
        ValueError: the export is of another size.
    """
    image = example(module, size)
    with torch.no_grad():
        expected = _tensors(module(image))
    found = _run(out, image)
    if isinstance(module, WithResults) and module[1].task == "detection":
        if not len(expected[0]) and not len(found[0]):
            return None
        differences = [_unmatched(expected, found, max(size)), _unmatched(found, expected, max(size))]
    else:
        differences = [
            (f - e).abs().max() / e.abs().max().clamp_min(1e-12) for f, e in zip(found, expected, strict=True)
        ]
    return torch.tensor(differences).max().item()  # Python's max can drop a NaN


def _unmatched(detections: Sequence[Tensor], others: Sequence[Tensor], side: int) -> float:
    """The largest distance of a detection to the nearest other one: of boxes in image sides, of scores, or 1 of the label; or the
    largest difference of their masks.
    """
    (boxes, scores, labels, *masks), (theirs, their_scores, their_labels, *their_masks) = detections, others
    if 0 in (len(boxes), len(theirs)):
        return float(len(boxes) > 0)
    distance = (boxes[:, None] - theirs).abs().amax(dim=2) / side + (scores[:, None] - their_scores).abs()
    distance, nearest = (distance + (labels[:, None] != their_labels).float()).min(dim=1)
    differences = [distance, *((ours - other[nearest]).abs() for ours, other in zip(masks, their_masks, strict=True))]
    return torch.cat([difference.flatten() for difference in differences]).max().item()


def _run(out: Path, image: Tensor) -> list[Tensor]:
    if out.suffix == ".pt2":
        with torch.no_grad():
            return _tensors(torch.export.load(out).module()(image))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    session = onnxruntime.InferenceSession(out, options, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    fixed = [n for n in taken.shape[2:] if isinstance(n, int)]
    if fixed and fixed != list(image.shape[2:]):
        raise ValueError(
            f"{out} takes images of {fixed} (H, W) only, not {list(image.shape[2:])}; export it with --dynamic"
        )
    try:
        return [torch.from_numpy(array) for array in session.run(None, {taken.name: image.numpy()})]
    except Exception as error:  # of onnxruntime's own types, which derive from Exception
        size = "x".join(map(str, image.shape[2:]))
        raise ValueError(f"{out} cannot take images of {size}: {str(error).strip().splitlines()[0]}") from error
