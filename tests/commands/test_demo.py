"""The trained model that ships with mmlisa finds the objects of its samples."""

import cv2
import numpy as np
import pytest

import demo_model
import mmlisa
from mmlisa import cli
from mmlisa.checkpoints import load_weights
from mmlisa.inference.load import DEMO
from mmlisa.training.config import build_model, load_config

OBJECTS = {
    "000000000006": ["motorcycle", "person", "quokka"],
    "000000000008": ["coin", "flower", "motorcycle", "rocket"],
}


def test_the_objects_of_the_samples_are_found_and_drawn(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    cli.main(["demo", "--out-dir", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()[1:3]
    model = mmlisa.load("demo")
    for line, (name, objects) in zip(lines, OBJECTS.items(), strict=True):
        found = model.predict(DEMO / f"{name}.jpg")
        assert sorted(model.classes[label] for label in found.labels) == objects
        assert all(f"1 {each}" in line for each in objects)
        picture, drawing = cv2.imread(str(DEMO / f"{name}.jpg")), cv2.imread(str(tmp_path / f"{name}.png"))
        assert drawing.shape[0] == 3 * picture.shape[0]


def test_the_checkpoint_fits_its_config():
    model = build_model(load_config("mask_rcnn_hylisanet_shipped_demo.py"))
    load_weights(model, DEMO / "model.pth", min_matched=1.0)


def test_a_halved_file_gives_the_same(tmp_path):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    values = {"w": np.float32(np.arange(512).reshape(8, 64) / 256), "t": np.arange(63, -1, -1)}
    nodes = [onnx.helper.make_node("Gather", ["w", "t"], [name], axis=1) for name in "ab"]
    nodes.append(onnx.helper.make_node("Add", ["a", "b"], ["y"]))
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
    ends = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [8, 64])]
    graph = onnx.helper.make_graph(nodes, "g", [], ends, weights)
    whole, half = (tmp_path / f"{name}.onnx" for name in ("whole", "half"))
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), whole)
    demo_model.halve(whole, half)
    np.testing.assert_array_equal(*(onnxruntime.InferenceSession(path).run(None, {}) for path in (whole, half)))
    assert sorted(node.op_type for node in onnx.load(half).graph.node) == ["Add", "Cast", "Cast", "Gather"]
