"""Eight bits: the file keeps its metadata and about its results, and the report compares it with fp32."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

from helpers.exported import KEEP_RATIO, write_model
from mmlisa.deploy import quantise, runtime
from mmlisa.training import config, runner

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def convolution(path: Path) -> Path:
    """A classifier: a 3x3 convolution of random weights, then the mean over the pixels."""
    weight = np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)
    write_model(path, {}, task="classification", steps=[dict(KEEP_RATIO, scale=[64, 64])])
    model = onnx.load(path)
    make = onnx.helper.make_node
    model.graph.node.extend(
        [make("Conv", ["image", "weight"], ["maps"]), make("ReduceMean", ["maps", "axes"], ["p"], keepdims=0)]
    )
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(weight, "weight"), onnx.numpy_helper.from_array(np.int64([2, 3]), "axes")]
    )
    model.graph.output.append(onnx.helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, [1, 5]))
    onnx.save(model, path)
    return path


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for index in range(quantise.LEAST):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return folder


@pytest.mark.parametrize(("number", "expected"), [(200, 200), (201, 101), (399, 200), (1000, 200)])
def test_calibration_images_are_spread_over_the_folder(tmp_path, number, expected):
    for index in range(number):
        (tmp_path / f"{index:04d}.png").touch()
    found = [int(path.stem) for path in quantise.find_images(tmp_path)]
    assert len(found) == expected <= quantise.MOST
    assert found[-1] >= number - 5


def test_hidden_files_do_not_calibrate(tmp_path):
    for name in (
        *(f"{index}.PNG" for index in range(8)),
        ".hidden/0.png",
        "__MACOSX/._0.png",
        "more/._1.png",
        "more/1.png",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in quantise.find_images(tmp_path)]
    assert found == [*(f"{index}.PNG" for index in range(8)), "more/1.png"]


def test_eight_bits_are_close_and_keep_the_metadata(tmp_path, pictures):
    exact = convolution(tmp_path / "model.onnx")
    target = quantise.quantise(exact, pictures)
    assert target == tmp_path / "model_int8.onnx"
    assert sorted(tmp_path.glob("*.onnx")) == [exact, target], "the prepared file is temporary"
    assert any(node.op_type == "DequantizeLinear" for node in onnx.load(target).graph.node)
    types = {value.data_type for value in onnx.load(target).graph.initializer}
    assert onnx.TensorProto.UINT8 in types, "with signed activations, onnxruntime computes in fp32 on x86"
    first, second = runtime.load(exact), runtime.load(target)
    assert first.metadata == second.metadata
    expected, found = (model.predict(pictures / "0.png").probabilities for model in (first, second))
    assert 0 < np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


def test_products_of_attention_and_transforms_stay_exact(tmp_path):
    """Of two products with constant matrices, the one of a linear layer is quantised; without metadata both are."""
    path, make = tmp_path / "model.onnx", onnx.helper.make_node
    hierarchy = "['Net', '{}', 'aten.linear.default']"
    layer_and_transform = ("torch.nn.modules.linear.Linear", "mmlisa.models.attention.lisa.LiSA")
    for modules, exact in ((layer_and_transform, {"second"}), (("", ""), set())):
        nodes = [make("MatMul", ["image", "first"], ["x"], "one"), make("MatMul", ["x", "second"], ["y"], "two")]
        for node, module in zip(nodes, modules, strict=True):
            if module:
                node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=hierarchy.format(module))
        rng = np.random.default_rng(0)
        matrices = [onnx.numpy_helper.from_array(rng.normal(size=(8, 8)).astype("f"), n) for n in ("first", "second")]
        ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 3, 8, 8]) for n in ("image", "y")]
        graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], matrices)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), path)
        images = (rng.normal(size=(1, 3, 8, 8)).astype("f") for _ in range(2))
        quantise.quantise_graph(path, tmp_path / "int8.onnx", images)
        kept = {value.name for value in onnx.load(tmp_path / "int8.onnx").graph.initializer} & {"first", "second"}
        assert kept == exact


def test_report(tmp_path, pictures, monkeypatch):
    """The columns are the files', measured by the config's own runner; the config stays as it is."""
    files = {"fp32": convolution(tmp_path / "a.onnx"), "int8": convolution(tmp_path / "b.onnx")}
    metrics = {str(files["fp32"]): {"accuracy/top1": 91.25}, str(files["int8"]): {"accuracy/top1": 90.5}}
    seen = []

    def build_runner(cfg, *args, **options):
        seen.append(cfg.visualizer.name)
        return SimpleNamespace(test=lambda: metrics[cfg.model.path])

    monkeypatch.setattr(runner, "build_runner", build_runner)
    monkeypatch.setattr(config, "check_data", lambda cfg, *splits: None)
    cfg = Config(dict(model=dict(type="own"), visualizer=dict(name="own")))
    text = quantise.to_markdown(quantise.compare(cfg, files, pictures / "0.png", rounds=1))
    head, _, top1, milliseconds = text.splitlines()
    assert head == "| | fp32 | int8 |"
    assert top1 == "| accuracy/top1 | 91.25 | 90.5 |"
    assert milliseconds.startswith("| ms per image | ")
    assert len(set(seen)) == 2, "MMEngine's visualizers are global, by name"
    assert cfg.model.type == cfg.visualizer.name == "own"


def test_a_metric_that_one_file_lacks():
    assert quantise.to_markdown({"fp32": {"mAP": 0.5}, "int8": {}}).endswith("| mAP | 0.5 | nan |")
