"""Exported files whose outputs are constants."""

import json
from pathlib import Path

import numpy as np
import onnx

KEEP_RATIO = dict(step="resize", scale=[96, 64], keep_ratio=True, method="bilinear", backend="cv2")
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
        steps=[KEEP_RATIO],
        score_threshold=0.3,
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
