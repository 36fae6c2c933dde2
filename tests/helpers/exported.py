"""Exported files whose outputs are constants, and images that are read in different ways."""

import json
from pathlib import Path

import cv2
import numpy as np
import onnx
from PIL import Image

KEEP_RATIO = dict(scale=[96, 64], keep_ratio=True)
BOX, MASK = (8.0, 4.0, 40.0, 36.0), np.float32([[1, 1], [0, 1]])


def write_model(path: Path, outputs: dict[str, np.ndarray], shape=(1, 3, "h", "w"), dtype="FLOAT", **metadata) -> Path:
    """An ONNX file whose outputs are constants, with the metadata of an export."""
    helper, kind = onnx.helper, getattr(onnx.TensorProto, dtype)
    constants = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value, name))
        for name, value in outputs.items()
    ]
    values = [
        helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in outputs.items()
    ]
    graph = helper.make_graph(constants, "g", [helper.make_tensor_value_info("image", kind, shape)], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    entries = dict(
        format=1,
        task="detection",
        classes=["cat", "dog"],
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        channels="RGB",
        uint8=False,
        border=[123.675, 116.28, 103.53],
        steps=[("Resize", KEEP_RATIO)],
        score_threshold=0.3,
        clip=True,
        align_corners=False,
        mask_stride=0,
        mask_threshold=0.5,
    )
    entries.update(metadata)
    helper.set_model_props(model, {f"mmlisa_{key}": json.dumps(value) for key, value in entries.items()})
    onnx.save(model, path)
    return path


def detector(path: Path, **options) -> Path:
    outputs = dict(
        boxes=np.float32([BOX, (0, 0, 8, 8)]),
        scores=np.float32([0.9, 0.2]),
        labels=np.int64([1, 0]),
        masks=np.stack([MASK, MASK]),
    )
    return write_model(path, outputs, **options)


def odd_images(folder: Path) -> list[Path]:
    """Ten files that are read in different ways."""
    rng = np.random.default_rng(0)

    def noise(*shape: int, dtype=np.uint8) -> np.ndarray:
        return cv2.resize(rng.integers(0, 256, (7, 9, 4), dtype=np.uint8), shape[1::-1]).astype(dtype)[..., : shape[2]]

    pictures = {
        "1x1.png": Image.fromarray(noise(1, 1, 3)),
        "wide.png": Image.fromarray(noise(200, 3000, 3)),
        "tall.jpg": Image.fromarray(noise(500, 33, 3)),
        "grey.png": Image.fromarray(noise(60, 80, 1)[..., 0]),
        "grey.jpg": Image.fromarray(noise(60, 80, 1)[..., 0]),
        "rgba.png": Image.fromarray(noise(61, 83, 4), "RGBA"),
        "palette.png": Image.fromarray(noise(61, 83, 3)).quantize(17),
        "binary.png": Image.fromarray(noise(61, 83, 1)[..., 0] > 127),
        "16bit.png": Image.fromarray(noise(61, 83, 1)[..., 0].astype(np.uint16) * 257 + 3),
    }
    for name, picture in pictures.items():
        picture.save(folder / name)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(noise(61, 83, 3)).save(folder / "turned.jpg", exif=exif)
    return sorted(folder.iterdir())
