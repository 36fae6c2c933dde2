"""Exported files in eight bits, by onnxruntime's static quantisation."""

from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
LEAST, MOST = 8, 200  # calibration images
# The layers whose products take the time. All else stays in fp32: scores and coordinates of boxes need more than eight bits.
LAYERS = ("Conv", "MatMul", "Gemm")


def find_images(folder: Path) -> list[Path]:
    """The calibration images of a folder, at most :data:`MOST`, spread over it.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: fewer than :data:`LEAST` images, whose ranges would stand for no others.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"calibration folder {str(folder)!r} does not exist")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if len(found) < LEAST:
        raise ValueError(f"calibration folder {str(folder)!r} has {len(found)} images; at least {LEAST} are needed")
    return found[:: -(-len(found) // MOST)]


def quantise(path: Path, folder: Path) -> Path:
    """Write ``<name>_int8.onnx`` beside an exported file: weights per channel and activations in eight bits.

    Args:
        path: a file of ``mmlisa export``.
        folder: images whose activations give the ranges.

    Raises:
        FileNotFoundError, ValueError: see :func:`find_images` and :func:`mmlisa.deploy.runtime.load`.
    """
    from onnxruntime import quantization

    from mmlisa.deploy import runtime

    model = runtime.load(path)
    images = find_images(folder)

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._inputs: Iterator[dict] = ({"image": model.prepare(runtime.read_image(image))[0]} for image in images)

        def get_next(self) -> dict | None:
            return next(self._inputs, None)

    target = path.with_name(f"{path.stem}_int8.onnx")
    prepared = path.with_name(f"{path.stem}_prepared.onnx")
    try:
        quantization.quant_pre_process(path, prepared, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared, target, Reader(), op_types_to_quantize=list(LAYERS), per_channel=True, reduce_range=True
        )
    finally:
        prepared.unlink(missing_ok=True)
    return target
