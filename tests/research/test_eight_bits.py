"""The variants of eight bits: which convolutions they name, and hard sigmoids as operators that integers have."""

import numpy as np
import pytest

from research import eight_bits

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture
def model():
    """Two convolutions, the second one depthwise and with a hard swish before it, then a product without weights."""
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["image", "first"], ["a"], "conv_1"),
        make("HardSigmoid", ["a"], ["gate"], alpha=1 / 6, beta=0.5),
        make("Mul", ["a", "gate"], ["b"]),
        make("Conv", ["b", "second"], ["c"], "conv_2", group=4),
        make("Mul", ["c", "c"], ["y"], "square"),
    ]
    rng = np.random.default_rng(0)
    weights = dict(first=rng.normal(size=(4, 3, 1, 1)), second=rng.normal(size=(4, 1, 1, 1)))
    values = [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    image, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, 8, 8])
        for name, channels in (("image", 3), ("y", 4))
    )
    graph = onnx.helper.make_graph(nodes, "graph", [image], [y], values)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def run(model) -> np.ndarray:
    image = 4 * np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": image})[0]


def test_convolutions_by_name(model):
    assert eight_bits.last_convolutions(model.graph) == ["conv_2"]
    found = eight_bits.variants(model.graph)
    assert found["convolutions only, depthwise ones in fp32"]["nodes_to_exclude"] == ["conv_2"]


def test_expanded_hard_sigmoids_compute_the_same(model):
    expected = run(model)
    names = eight_bits.expand_hard_sigmoids(model)
    assert names == ["gate_Mul", "gate_Add", "gate_Clip", "gated_b"]
    assert "HardSigmoid" not in [node.op_type for node in model.graph.node]
    np.testing.assert_allclose(run(model), expected, rtol=1e-5, atol=1e-6)
