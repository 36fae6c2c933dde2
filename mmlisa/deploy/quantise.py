"""Exported files in eight bits, by onnxruntime's static quantisation."""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mmlisa.datasets.folder import IMAGE_SUFFIXES, walk

if TYPE_CHECKING:
    from mmengine.config import Config

LEAST, MOST = 8, 200  # calibration images
# The layers whose products take the time. All else stays in fp32: scores and coordinates of boxes need more than eight bits.
LAYERS = ("Conv", "MatMul", "Gemm")
_MODULES = "pkg.torch.onnx.class_hierarchy"
_LAYER = r"(Linear|Conv)', '[^']*'\]$"  # also ours, such as ChannelMajorLinear


def find_images(folder: Path) -> list[Path]:
    """The calibration images of a folder and of those in it, at most :data:`MOST`, spread over them; hidden files do not count.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: fewer than :data:`LEAST` images, too few to estimate the ranges of the activations.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"calibration folder {str(folder)!r} does not exist")
    found = sorted(folder / name for name in walk(folder) if name.lower().endswith(IMAGE_SUFFIXES))
    if len(found) < LEAST:
        raise ValueError(f"calibration folder {str(folder)!r} has {len(found)} images; at least {LEAST} are needed")
    return found[:: -(-len(found) // MOST)]


def quantise(path: Path, folder: Path) -> Path:
    """Write ``<name>_int8.onnx`` beside an exported file: weights per channel and activations in eight bits.

    The images in ``folder`` give the ranges of the activations.

    Raises:
        FileNotFoundError, ValueError: see :func:`find_images` and :func:`mmlisa.deploy.runtime.load`.
    """
    from mmlisa.deploy import runtime

    model = runtime.load(path)
    target = path.with_name(f"{path.stem}_int8.onnx")
    quantise_graph(path, target, (model.prepare(runtime.read_image(image))[0] for image in find_images(folder)))
    return target


def quantise_graph(path: Path, target: Path, images: Iterable[np.ndarray], **options: Any) -> None:
    """Write the graph of ``path`` in eight bits to ``target``, with the ranges that ``images`` give: inputs ``[B, 3, H, W]``.

    ``options`` are those of onnxruntime's ``quantize_static``; tools/research/eight_bits.py compares them.
    """
    import onnxruntime
    from onnxruntime import quantization

    onnxruntime.set_default_logger_severity(3)  # errors: the warnings are about nodes that onnxruntime cannot fold
    inputs = ({"image": image} for image in images)

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(inputs, None)

    prepared = target.with_name(f"{target.stem}_prepared.onnx")
    try:
        quantization.quant_pre_process(path, prepared, skip_symbolic_shape=True)
        # On x86, onnxruntime computes with integers only if the activations are unsigned, and without VNNI the products of
        # weights of eight bits overflow.
        ours = dict(activation_type=quantization.QuantType.QUInt8, per_channel=True, reduce_range=True)
        ours |= dict(op_types_to_quantize=list(LAYERS), nodes_to_exclude=_outside_of_layers(path))
        quantization.quantize_static(prepared, target, Reader(), **ours | options)
    finally:
        prepared.unlink(missing_ok=True)


def _outside_of_layers(path: Path) -> list[str]:
    """Names of the MatMul nodes outside of layers (attention, Fourier transforms), where eight bits are not faster.

    PyTorch's exporter writes the modules that a node belongs to into its metadata: ``"['…', 'torch.nn.….Linear', 'aten.…']"``.
    """
    import onnx

    products = [node for node in onnx.load(path, load_external_data=False).graph.node if node.op_type == "MatMul"]
    modules = [{item.key: item.value for item in node.metadata_props}.get(_MODULES, "") for node in products]
    return [node.name for node, names in zip(products, modules, strict=True) if names and not re.search(_LAYER, names)]


def compare(
    cfg: "Config", files: dict[str, Path], image: Path, rounds: int = 11, threads: int | None = None
) -> dict[str, dict[str, float]]:
    """The metrics of exported files on the test data of ``cfg``, and their milliseconds per image in onnxruntime.

    Args:
        cfg: the config that the files were exported from.
        files: by name.
        image: the image that is timed.
        rounds: samples of the time, whose median counts; the files take turns.
        threads: of onnxruntime; None for all cores.

    Returns:
        by file, then by metric.

    Raises:
        FileNotFoundError: the test data are missing.
    """
    from mmlisa.deploy import inference, runtime
    from mmlisa.training.config import check_data
    from mmlisa.training.runner import build_runner

    check_data(cfg, "test")
    results: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for name, file in files.items():
            own = inference.exported_config(cfg, file)
            own.work_dir = folder
            if own.get("visualizer"):  # visualizers are global, by name
                own.visualizer.name = f"{__name__}.{name}"
            results[name] = build_runner(own, 1.0, verbose=False).test()
    models = {name: runtime.load(file, threads=threads) for name, file in files.items()}
    prepared = {name: model.prepare(runtime.read_image(image))[0] for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            start = perf_counter()
            model.run(prepared[name])
            times[name].append(1e3 * (perf_counter() - start))
    return {name: found | {"ms per image": sorted(times[name])[rounds // 2]} for name, found in results.items()}


def to_markdown(results: dict[str, dict[str, float]]) -> str:
    """What :func:`compare` returns, with a column for each file."""
    lines = ["| | " + " | ".join(results) + " |", "|---" * (1 + len(results)) + "|"]
    for metric in next(iter(results.values())):
        lines.append(
            f"| {metric} | " + " | ".join(f"{found.get(metric, math.nan):.4g}" for found in results.values()) + " |"
        )
    return "\n".join(lines)
