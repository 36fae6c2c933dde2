"""An LCNet in an ONNX file gives our LCNet the output that onnxruntime computes from the file."""

from pathlib import Path

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


def write_lcnet(path: Path, blocks: list[tuple], neck: bool = False) -> str:
    """A file as paddle2onnx writes it: opaque names, biases of squeeze and excitation in an addition."""
    nodes, arrays, rng = [], [], np.random.default_rng(0)

    def constant(*shape, low=-0.5):
        array = rng.uniform(low, low + 1, shape).astype("f4")
        arrays.append(onnx.numpy_helper.from_array(array, f"array_{len(arrays)}"))
        return arrays[-1].name

    def add(kind, *inputs, **attributes):
        nodes.append(onnx.helper.make_node(kind, [*inputs], [f"value_{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def conv(x, out, into, size=1, stride=1, groups=1):
        weight = constant(out, into // groups, size, size)
        return add("Conv", x, weight, group=groups, pads=[size // 2] * 4, strides=[stride] * 2)

    def unit(x, out, *args):
        x = conv(x, out, *args)
        norms = [constant(out, low=low) for low in (0.5, -0.5, -0.5, 0.5)]
        return add("HardSwish", add("BatchNormalization", x, *norms, epsilon=1e-5))

    def biased(x, out, into):
        return add("Add", conv(x, out, into), constant(1, out, 1, 1))

    x, into = unit("image", 8, 3, 3, 2), 8
    for out, size, stride, excites in blocks:
        x = unit(x, into, into, size, stride, into)
        if excites:
            hidden = add("Relu", biased(add("GlobalAveragePool", x), into // 4, into))
            x = add("Mul", x, add("HardSigmoid", biased(hidden, into, into // 4), alpha=1 / 6, beta=0.5))
        x, into = unit(x, out, into), out
    x = unit(x, 16, into) if neck else x
    kinds = [onnx.helper.make_tensor_value_info(name, 1, None) for name in ("image", x)]
    graph = onnx.helper.make_graph(nodes, "lcnet", kinds[:1], kinds[1:], arrays)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def test_a_file_has_its_output_in_our_network(tmp_path):
    image = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype("f4")
    session = onnxruntime.InferenceSession(write_lcnet(tmp_path / "lcnet.onnx", BLOCKS))
    (expected,) = session.run(None, {"image": image})
    checkpoint, report = convert_published(write_lcnet(tmp_path / "detector.onnx", BLOCKS, neck=True))
    assert checkpoint["meta"]["backbone"] == LCNet("x0.25").settings()
    assert "behind" in report
    network = LCNet("x0.25").eval()
    network.load_state_dict({name.removeprefix("backbone."): t for name, t in checkpoint["state_dict"].items()})
    with torch.inference_mode():
        found = network(torch.from_numpy(image))[-1].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.onnx"
    with pytest.raises(CheckpointError, match=r"'blocks4\.1\.dw_conv' would be nothing.* LCNet"):
        convert_published(write_lcnet(path, BLOCKS[:4]))
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(CheckpointError, match="not an ONNX file"):
        convert_published(str(path))
    with pytest.raises(FileNotFoundError):
        convert_published(str(tmp_path / "missing.onnx"))
