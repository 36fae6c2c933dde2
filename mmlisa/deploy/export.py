"""Models as ONNX files and as ``torch.export`` programs, checked against the model they come from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmlisa.checkpoints import load_weights
from mmlisa.engine.building import build_model

OPSET = 18
SUFFIXES = (".onnx", ".pt2")


class Exportable(nn.Module):
    """``forward(image: [B, 3, H, W])`` -> a tuple of tensors, for a normalised image as the data preprocessor leaves it.

    A classifier gives its scores, a segmentor its logits at the size of the image. A detector gives the maps of its head, of its
    region proposals where it has two stages, or of its neck where its head is a transformer; what turns them into boxes is not
    part of the graph.

    Args:
        model: an mmdet, mmseg or mmpretrain model.
        backbone_only: its backbone's maps instead.
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


def build_exportable(cfg: Config, checkpoint: str | None, backbone_only: bool = False) -> Exportable:
    """The model of a config with a checkpoint's weights, or freshly made where it is None.

    Raises:
        FileNotFoundError, ValueError: a checkpoint that is missing, damaged or of another model.
    """
    model = build_model(cfg)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    return Exportable(model, backbone_only)


def export(module: nn.Module, out: Path, size: Sequence[int], *, dynamic: bool = False) -> None:
    """Writes ``module``, a function of one ``[1, 3, H, W]`` image, to ``out``.

    Args:
        out: ``.onnx`` (opset 18) or ``.pt2`` (``torch.export``).
        size: H and W of the images; with ``dynamic`` only of the example the graph is recorded from.
        dynamic: H and W are free, in multiples of the network's stride as those of the example are. Its grids must not be
            those of the pretraining size, which networks with position-dependent parameters treat apart.

    Raises:
        ValueError: another suffix, or ``dynamic`` for a network that fixes H or W.
        ImportError: PyTorch before 2.8, whose exporters fail on many of these networks.
    """
    if torch.__version__ < "2.8":
        raise ImportError(
            f"exports need PyTorch 2.8 or newer, this is {torch.__version__}; everything else runs with it"
        )
    if out.suffix not in SUFFIXES:
        raise ValueError(f"out is {out}; its suffix must be one of {SUFFIXES}")
    image = torch.randn(1, 3, *size)
    shapes = {"image": {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}} if dynamic else None
    # Not in inference mode: its tensors cannot become constants of a graph.
    with torch.no_grad():
        try:
            program = torch.export.export(module, (image,), dynamic_shapes=shapes, strict=False)
        except Exception as error:
            if not dynamic:
                raise
            raise ValueError(
                "dynamic: H and W of this network cannot be left free from this example; take one of another size than the "
                "pretraining one, or export one file per size. PyTorch says: " + str(error).strip().splitlines()[0]
            ) from error
        if out.suffix == ".pt2":
            torch.export.save(program, out)
            return
        # Runtimes simplify what they load; the exporter takes minutes for that.
        exported = torch.onnx.export(
            program, dynamo=True, opset_version=OPSET, input_names=["image"], optimize=False, verbose=False
        )
    exported.save(out, external_data=False)


def largest_difference(module: nn.Module, out: Path, size: Sequence[int]) -> float:
    """The largest difference between ``module`` and its export ``out`` on a random image, over each output's largest value.

    Raises:
        ValueError: the export is of another size.
    """
    image = torch.randn(1, 3, *size)
    with torch.no_grad():
        expected = _tensors(module(image))
    found = _run(out, image)
    return max(
        ((f - e).abs().max() / e.abs().max().clamp_min(1e-12)).item() for f, e in zip(found, expected, strict=True)
    )


def _run(out: Path, image: Tensor) -> list[Tensor]:
    if out.suffix == ".pt2":
        with torch.no_grad():
            return _tensors(torch.export.load(out).module()(image))
    from onnxruntime import InferenceSession

    session = InferenceSession(out, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    fixed = [n for n in taken.shape[2:] if isinstance(n, int)]
    if fixed and fixed != list(image.shape[2:]):
        raise ValueError(
            f"{out} takes images of {fixed} (H, W) only, not {list(image.shape[2:])}; export it with --dynamic"
        )
    return [torch.from_numpy(array) for array in session.run(None, {taken.name: image.numpy()})]
