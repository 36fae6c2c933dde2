"""Files that differ from the model are not written: the comparison, the writing, and the effect of padding."""

import logging
import warnings
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from helpers.pages import ROOT, read_blocks
from helpers.whole_models import build, image, predict
from mmlisa.errors import UserError
from mmlisa.export import writing
from mmlisa.export.metadata import describe
from mmlisa.export.whole import EndToEnd, Exportable, Preprocess, takes_rgb
from mmlisa.export.writing import Follower, compare, difference, examples, padding_effect, write
from mmlisa.models.backbones import LiSANet
from mmlisa.training.config import load_config

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
VALUES = torch.randn(1, 4, 8, 16, generator=torch.Generator().manual_seed(0))


def small_backbone() -> LiSANet:
    arch = dict(base="small", depths=(1, 1), channels=(8, 16), num_heads=(1, 2), strides=(4, 2), mixers="CL")
    return LiSANet(dict(arch, mlp_ratios=(2, 2)), image_size=64)


def test_a_file_equals_its_model(tmp_path):
    network, out = Exportable(small_backbone()), tmp_path / "model.onnx"
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
    backbone = small_backbone()
    of_another = describe(load_config("classifier_hylisanet_demo.py"), EndToEnd(build("classifier_hylisanet")), {})
    write(Exportable(backbone), tmp_path / "model.onnx", (64, 64), metadata=of_another | {"mmlisa_steps": "[]"})
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
    write(Exportable(nn.Conv2d(3, 4, 3)), tmp_path / "model.onnx", (64, 64))
    assert ([logging.getLogger(name).level for name in names], warnings.filters) == before


def test_a_layer_that_cannot_be_recorded_is_named(tmp_path):
    class Counting(nn.Module):
        def forward(self, x):
            return x[:, :, : int(x.sum())]

    with pytest.raises(ValueError, match="cannot record Counting") as error:
        write(Exportable(nn.Sequential(Counting())), tmp_path / "model.onnx", (64, 64))
    assert "--size" not in str(error.value)


def test_a_size_at_which_the_model_fails_is_named(tmp_path):
    network = nn.Unflatten(2, (-1, 2))  # pairs, which odd sides do not have
    with pytest.raises(ValueError, match=r"225x129.*--size H W"):
        write(Exportable(network), tmp_path / "model.onnx", (64, 96), dynamic=True)


def test_a_file_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_open", lambda *_: (lambda image, threshold: 1 / 0, 1))
    with pytest.raises(ValueError, match="64x96, division"):
        write(Exportable(nn.Conv2d(3, 4, 3)), tmp_path / "model.onnx", (64, 96))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, VALUES.double(), VALUES[..., :-1]])
@pytest.mark.parametrize("exact", [False, True])
def test_what_cannot_be_compared_is_infinitely_apart(wrong, exact):
    found = wrong if isinstance(wrong, torch.Tensor) else VALUES.index_fill(3, torch.tensor(5), wrong)
    assert difference(VALUES, found, exact) == difference(found, VALUES, exact) == torch.inf
    assert difference(found, found, exact) == (0 if isinstance(wrong, torch.Tensor) else torch.inf), (
        "a NaN hides what was meant"
    )


def test_a_large_channel_does_not_hide_the_error_of_a_small_one():
    found = VALUES.clone()
    found[:, 1] += 0.01
    assert (
        0.005 < difference(VALUES, found) < 0.01
    )  # a tenth of a normal distribution is more than 1.64 from its median
    scale = torch.tensor([1000.0, 1, 1, 1])[:, None, None]
    assert difference(VALUES * scale, found * scale) > 0.001
    offset = torch.tensor([1000.0, 0, 0, 0])[:, None, None]
    assert difference(VALUES + offset, found + offset) > 0.001


@pytest.mark.parametrize("usual", [VALUES, 0 * VALUES, VALUES[:, :1] + 7, VALUES[0, 0, 0]])
def test_a_large_value_does_not_hide_the_errors_of_the_others(usual):
    expected = usual.clone()
    expected.view(-1)[0] = 1e6
    found = expected.clone()
    found.view(-1)[0] += 1  # rounding of a large value
    assert difference(expected, found) < 1e-5
    found.view(-1)[5] += 0.1
    assert difference(expected, found) > 0.01


def test_values_behind_relu_may_differ_by_rounding():
    values = VALUES.sub(0.5).relu()
    assert difference(values, torch.where(values > 0, values + 1e-6, 0)) < 1e-3


def test_exact_values_may_differ_by_rounding_only():
    boxes = torch.tensor([[0.0, 0, 300, 200], [10, 10, 20, 20]])
    assert difference(boxes, boxes * (1 + 1e-6), exact=True) < 1e-5
    assert difference(boxes, boxes + torch.tensor([[0.0], [0.001]]), exact=True) > 1e-5
    assert difference(torch.tensor([1, 2]), torch.tensor([2, 1]), exact=True) == torch.inf


class Detector(EndToEnd):
    """Two candidates, of which the threshold drops some."""

    def __init__(self, scores, masks=0.0):
        nn.Module.__init__(self)
        self.task, self.preprocess, self.outputs = (
            "detection",
            SimpleNamespace(uint8=False),
            ("boxes", "scores", "labels"),
        )
        self.threshold, self.scores = torch.tensor(0.5), torch.tensor(scores)

    def predict(self, image, cut, threshold=None, limits=None):
        scores = cut(self.scores)
        index = (scores > (self.threshold if threshold is None else threshold)).nonzero()[:, 0]
        return torch.arange(8.0).view(2, 4)[index], scores[index], index


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("scores", [(0.9, 0.8), (0.2, 0.1)])
def test_each_result_is_compared_also_where_nothing_passes_the_threshold(part, scores):
    model, calls = Detector(scores), []

    def run(image, threshold):
        calls.append(threshold)
        values = [*model.predict(image, lambda x: x, threshold), model.scores]
        if wrong and len(values[part]):
            values[part] = values[part] + 1
        return values

    wrong = False
    assert compare(model, run, None, 1e-3) == 0
    assert (calls[-1] is None) if scores[0] > 0.5 else (calls[-1] == -1)
    wrong = True
    with pytest.raises(ValueError, match="differs"):
        compare(model, run, None, 1e-3)


def test_nothing_detected_proves_nothing():
    model = Detector(())
    with pytest.raises(ValueError, match="nothing is detected"):
        compare(model, lambda image, threshold: list(model.named_outputs(image).values()), None, 1e-3)


def test_the_model_goes_on_with_the_values_of_the_file():
    """Two scores of which rounding makes the second one better."""
    model = Detector((0.9, 0.9))
    follow = Follower([torch.tensor([0.9, 0.9000001])], 1e-3)
    assert torch.equal(model.predict(None, follow)[1], torch.tensor([0.9, 0.9000001]))
    with pytest.raises(ValueError, match="differs"):
        follow(VALUES)  # the file has fewer values


@pytest.mark.parametrize("results", [(), (VALUES[:, :0],)])
def test_a_network_without_values_is_refused(results):
    network = SimpleNamespace(predict=lambda image, follow, threshold: results)
    with pytest.raises(UserError, match="no values"):
        compare(network, lambda image, threshold: results, None, 1e-3)


class Net(nn.Module):
    """Adds ``share`` of the mean of the image to each pixel."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.seen = share, []

    def extract_feat(self, image: torch.Tensor) -> list[torch.Tensor]:
        self.seen.append(image)
        return [image + self.share * image.mean()]


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_the_effect_is_that_of_the_mean(share):
    model = Net(share)
    module = SimpleNamespace(model=model, preprocess=SimpleNamespace(divisor=32, value=0.0))
    mean, largest = padding_effect(module, (140, 90))
    alone, padded = model.seen
    assert (alone.shape[2:], padded.shape[2:]) == ((64, 96), (160, 96))
    expected = abs(share * (alone.mean() - padded.mean())) / (alone.max() - alone.min())
    assert mean == pytest.approx(expected.item(), abs=1e-6)
    assert largest == pytest.approx(expected.item(), abs=1e-6)
    assert (largest > 1e-3) == (share > 0)
