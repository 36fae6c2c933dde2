"""Files that differ from the model are not written."""

import logging
import warnings

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from helpers.pages import ROOT, read_blocks
from helpers.whole_models import build, image, predict
from mmlisa.export import writing
from mmlisa.export.compare import compare, examples
from mmlisa.export.metadata import describe
from mmlisa.export.whole import EndToEnd, Exportable, Preprocess, takes_rgb
from mmlisa.export.writing import write
from mmlisa.models.backbones import LiSANet
from mmlisa.training.config import load_config

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")


class Model(nn.Module):
    """As much of a classifier as the export looks at."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = lambda maps: maps[-1].mean((2, 3))

    def extract_feat(self, image):
        return self.backbone(image)


def test_a_file_equals_its_model(tmp_path):
    arch = dict(base="small", depths=(1, 1), channels=(8, 16), num_heads=(1, 2), strides=(4, 2), mixers="CL")
    network = Exportable(Model(LiSANet(dict(arch, mlp_ratios=(2, 2)), image_size=64)))
    out = tmp_path / "model.onnx"
    assert write(network, out, (64, 64))[64, 64] < 1e-4
    run, _ = writing._open(out)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
    with pytest.raises(ValueError, match="differs"):
        compare(network, run, examples(network, (64, 64))[:1], 1e-2)


@pytest.mark.parametrize(
    ("kind", "name", "strides"),
    [
        ("picodet", "picodet_castling_lcnet", (8, 16, 32, 64)),
        ("rtmdet", "rtmdet_castling_lcnet", (8, 16, 32)),
        ("yolox", "yolox_castling_esnet", (8, 16, 32)),
    ],
)
def test_the_function_of_the_page_decodes_raw_outputs(kind, name, strides):
    (code,) = (block.code for block in read_blocks(ROOT / "docs" / "export.md") if "def decode" in block.code)
    exec(code, scope := {})
    model, size = build(name), (160, 192)
    prepared, _ = Preprocess(model, uint8=True)(
        image(size) if takes_rgb(model.data_preprocessor) else image(size).flip(1)
    )
    with torch.no_grad():
        raw = {key: x.numpy() for key, x in Exportable(model).named_outputs(prepared).items()}
    boxes, scores = scope["decode"](raw, kind, strides)
    theirs = predict(model, "mmdet", size).pred_instances
    assert len(theirs) >= 20
    limits = (192, 160) * 2 if kind != "yolox" else np.inf
    for box, score, label in zip(theirs.bboxes.numpy(), theirs.scores.numpy(), theirs.labels, strict=True):
        apart = np.abs(boxes.clip(0 if kind != "yolox" else -np.inf, limits) - box).max(axis=1)
        assert (np.abs(scores[:, label] - score)[apart < 0.01] < 1e-4).any()


def test_the_recipe_of_the_page_quantises_layers_only(tmp_path, monkeypatch):
    (code,) = (block.code for block in read_blocks(ROOT / "docs" / "export.md") if "quantize_static" in block.code)
    arch = dict(base="small", depths=(1, 1), channels=(8, 16), num_heads=(1, 2), strides=(4, 2), mixers="CL")
    backbone = LiSANet(dict(arch, mlp_ratios=(2, 2)), image_size=64)
    of_another = describe(load_config("classifier_hylisanet_demo.py"), EndToEnd(build("classifier_hylisanet")), {})
    write(Exportable(Model(backbone)), tmp_path / "model.onnx", (64, 64), metadata=of_another | {"mmlisa_steps": "[]"})
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "1.jpg"), np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    nodes = onnx.load("int8.onnx").graph.node
    small = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    quantised = [set(node.input[:2]) <= small for node in nodes if node.op_type in ("MatMul", "Gemm")]
    assert sum(quantised) == sum(isinstance(layer, nn.Linear) for layer in backbone.modules())
    assert not all(quantised), "Fourier transforms stay"


def test_warnings_and_the_logs_of_pytorch_stay_as_they_were(tmp_path):
    names = "torch", "torch.onnx", "torch.onnx._internal.exporter._core", "onnxscript"
    before = [logging.getLogger(name).level for name in names], [*warnings.filters]
    write(Exportable(Model(nn.Conv2d(3, 4, 3)), backbone_only=True), tmp_path / "model.onnx", (64, 64))
    assert ([logging.getLogger(name).level for name in names], warnings.filters) == before


def test_a_layer_that_cannot_be_recorded_is_named(tmp_path):
    class Counting(nn.Module):
        def forward(self, x):
            return x[:, :, : int(x.sum())]

    with pytest.raises(ValueError, match="cannot record Counting") as error:
        write(Exportable(Model(nn.Sequential(Counting())), backbone_only=True), tmp_path / "model.onnx", (64, 64))
    assert "--size" not in str(error.value)


class Columns(nn.Module):
    def forward(self, x):
        return (torch.arange(x.shape[2] * x.shape[3]) % x.shape[3]).float()


def test_remainders_of_a_free_side(tmp_path):
    differences = write(Exportable(Model(Columns()), True), tmp_path / "model.onnx", (64, 96), dynamic=True)
    assert set(differences.values()) == {0}


def test_a_size_at_which_the_model_fails_is_named(tmp_path):
    network = nn.Unflatten(2, (-1, 2))  # pairs, which odd sides do not have
    with pytest.raises(ValueError, match=r"129x225.*--size H W"):
        write(Exportable(Model(network), backbone_only=True), tmp_path / "model.onnx", (64, 96), dynamic=True)


def test_a_file_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_open", lambda *_: (lambda image, thresholds: 1 / 0, 1))
    with pytest.raises(ValueError, match="64x96, division"):
        write(Exportable(Model(nn.Conv2d(3, 4, 3)), backbone_only=True), tmp_path / "model.onnx", (64, 96))
