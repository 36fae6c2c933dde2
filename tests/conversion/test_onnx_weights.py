"""An LCNet in an ONNX file gives our LCNet the output that onnxruntime computes from the file."""

import numpy as np
import pytest
import torch

from mmlisa.checkpoints import CheckpointError
from mmlisa.conversion import convert_published
from mmlisa.models.backbones import LCNet

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
# Out channels, kernel size and stride of the blocks, and whether they have squeeze and excitation: PP-LCNet x0.25.
BLOCKS = [
    *((8, 3, 1, False), (16, 3, 2, False), (16, 3, 1, False), (32, 3, 2, False), (32, 3, 1, False), (64, 3, 2, False)),
    *[(64, 5, 1, False)] * 5,
    *((128, 5, 2, True), (128, 5, 1, True)),
]


class Graph:
    """A graph as paddle2onnx writes it: opaque names, biases of squeeze and excitation in an addition."""

    def __init__(self):
        self.nodes, self.arrays, self.rng, self.last = [], [], np.random.default_rng(0), "image"

    def constant(self, *shape, low=-0.5):
        array = self.rng.uniform(low, low + 1, shape).astype("f4")
        self.arrays.append(onnx.numpy_helper.from_array(array, f"array_{len(self.arrays)}"))
        return self.arrays[-1].name

    def add(self, kind, *inputs, **attributes):
        out = f"value_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, [*inputs], [out], **attributes))
        return out

    def conv(self, out, into, size=1, stride=1, groups=1, norm=True):
        weight = self.constant(out, into // groups, size, size)
        pads = [size // 2] * 4
        x = self.add("Conv", self.last, weight, group=groups, pads=pads, strides=[stride] * 2)
        if norm:
            norms = [self.constant(out, low=low) for low in (0.5, -0.5, -0.5, 0.5)]
            x = self.add("HardSwish", self.add("BatchNormalization", x, *norms, epsilon=1e-5))
        else:
            x = self.add("Add", x, self.constant(1, out, 1, 1))
        self.last = x

    def excite(self, width):
        x = self.last
        self.last = self.add("GlobalAveragePool", x)
        self.conv(width // 4, width, norm=False)
        self.last = self.add("Relu", self.last)
        self.conv(width, width // 4, norm=False)
        self.last = self.add("Mul", x, self.add("HardSigmoid", self.last, alpha=1 / 6, beta=0.5))

    def save(self, path):
        kinds = [onnx.helper.make_tensor_value_info(name, 1, None) for name in ("image", self.last)]
        graph = onnx.helper.make_graph(self.nodes, "lcnet", kinds[:1], kinds[1:], self.arrays)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def lcnet(blocks):
    graph, into = Graph(), 8
    graph.conv(8, 3, 3, stride=2)
    for out, size, stride, excites in blocks:
        graph.conv(into, into, size, stride, into)
        if excites:
            graph.excite(into)
        graph.conv(out, into)
        into = out
    return graph


def test_a_file_has_its_output_in_our_network(tmp_path):
    graph, path = lcnet(BLOCKS), tmp_path / "lcnet.onnx"
    graph.save(path)
    image = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype("f4")
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"image": image})
    graph.conv(16, 128)  # a neck's
    graph.save(path)
    checkpoint, report = convert_published(str(path))
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.LCNet", arch="x0.25")
    assert "behind" in report
    network = LCNet("x0.25").eval()
    network.load_state_dict({name.removeprefix("backbone."): t for name, t in checkpoint["state_dict"].items()})
    with torch.inference_mode():
        found = network(torch.from_numpy(image))[-1].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.onnx"
    lcnet(BLOCKS[:4]).save(path)
    with pytest.raises(CheckpointError, match=r"'blocks4\.1\.dw_conv' would be nothing.* LCNet"):
        convert_published(str(path))
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(CheckpointError, match="not an ONNX file"):
        convert_published(str(path))
