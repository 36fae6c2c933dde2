"""Files that differ from the model are not written; test pipelines become steps of the runtime."""

import json
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
import torchvision
from mmengine.config import Config
from mmengine.dataset import Compose
from torch import nn

from helpers.exported import write_model
from helpers.pages import ROOT, read_blocks
from helpers.whole_models import build, image, predict
from mmlisa.deploy import export as module
from mmlisa.deploy import runtime
from mmlisa.deploy.export import (
    Exportable,
    adaptive_max_pool2d,
    describe,
    export,
    final_size,
    largest_difference,
    merge_equal,
    reading_steps,
)
from mmlisa.deploy.results import EndToEnd, Preprocess, takes_rgb
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
    assert export(network, out, (64, 64))[64, 64] < 1e-4
    run = module._load(str(out), ".onnx")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
        assert largest_difference(network, run, (64, 64)) > 1e-2


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
    export(Exportable(Model(backbone)), tmp_path / "model.onnx", (64, 64), metadata=of_another | {"mmlisa_steps": "[]"})
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "1.jpg"), np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    nodes = onnx.load("int8.onnx").graph.node
    small = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    quantised = [set(node.input[:2]) <= small for node in nodes if node.op_type in ("MatMul", "Gemm")]
    assert sum(quantised) == sum(isinstance(layer, nn.Linear) for layer in backbone.modules())
    assert not all(quantised), "Fourier transforms stay"


@pytest.mark.parametrize(
    ("channels", "groups", "offset_groups", "kernel", "stride", "padding", "dilation", "has_mask"),
    [(8, 2, 4, 3, 1, 1, 1, True), (4, 4, 4, 1, 1, 0, 1, False), (6, 1, 1, 3, 2, 2, 2, True)],
)
def test_deformable_convolutions(channels, groups, offset_groups, kernel, stride, padding, dilation, has_mask):
    x, weight, bias = torch.rand(2, channels, 9, 11), torch.randn(4, channels // groups, kernel, kernel), torch.randn(4)
    rows, columns = ((n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for n in (9, 11))
    offset = torch.randn(2, 2 * offset_groups * kernel**2, rows, columns) * 3
    mask = torch.rand(2, offset_groups * kernel**2, rows, columns)
    geometry = [stride] * 2 + [padding] * 2 + [dilation] * 2 + [groups, offset_groups, has_mask]
    expected = torchvision.ops.deform_conv2d(
        x, offset, weight, bias, stride, padding, dilation, mask if has_mask else None
    )
    found = module.deform_conv2d(x, weight, offset, mask, bias, *geometry)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sides", [(3, 5), (5, 2), (7, 9)])
def test_adaptive_maxima(sides):
    x = torch.randn(2, 3, 7, 10)
    assert torch.equal(adaptive_max_pool2d(x, sides)[0], nn.functional.adaptive_max_pool2d(x, sides))


class Rounded(nn.Module):
    """The last digits of a sum, which differ between fp32 and fp64."""

    def forward(self, x):
        return (x.sum((2, 3), keepdim=True) / 3 * 2**20) % 1


def test_differences_of_one_image_in_three_and_of_rounding_are_no_faults(tmp_path, monkeypatch):
    plain, factors = Exportable(Model(nn.Conv2d(3, 4, 3)), backbone_only=True), iter((2, 1, 1))
    monkeypatch.setattr(module, "_load", lambda *_: lambda image: [x * next(factors) for x in plain(image)])
    assert export(plain, tmp_path / "model.onnx", (64, 64)) == {(64, 64): 0}
    network = Exportable(Model(Rounded()), backbone_only=True)
    monkeypatch.setattr(module, "_load", lambda *_: lambda image: [1 + x for x in network(image)])
    assert export(network, tmp_path / "model.onnx", (64, 64)) == {(64, 64): None}


class TwoWaves(nn.Module):
    def forward(self, x):
        a, b = (torch.arange(x.shape[0]).cos() for _ in range(2))
        return x * (a.mul_(2) if self.in_place else a) + x * b


@pytest.mark.parametrize(("in_place", "count"), [(False, 1), (True, 2)])
def test_equal_tensors_of_sizes_are_recorded_once(in_place, count):
    """Two tensors of which one is changed in place are not equal."""
    module = TwoWaves()
    module.in_place = in_place
    program = torch.export.export(module, (torch.randn(5),), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False)
    merge_equal(program.graph)
    assert sum(node.target is torch.ops.aten.cos.default for node in program.graph.nodes) == count
    torch.testing.assert_close(program.module()(torch.arange(7.0)), module(torch.arange(7.0)))


@pytest.mark.parametrize("aligned", [False, True])
def test_maps_are_resized_as_in_mmsegmentation(aligned):
    torch.manual_seed(0)
    maps = torch.randn(1, 4, 9, 13)
    resized = nn.functional.interpolate(maps, (31, 50), mode="bilinear", align_corners=aligned)
    found = runtime._best_class(maps[0].numpy(), (31, 50), aligned)
    assert (found == resized[0].argmax(0).numpy()).mean() > 0.97  # OpenCV rounds the weights of aligned corners


@pytest.mark.parametrize("factor", [1.1, np.nan])
def test_a_file_that_differs_replaces_no_other(factor, tmp_path, monkeypatch):
    network = Exportable(Model(nn.Conv2d(3, 4, 3)), backbone_only=True)
    monkeypatch.setattr(module, "_load", lambda *_: lambda image: [x * factor for x in network(image)])
    out = tmp_path / "model.onnx"
    out.write_text("earlier")
    with pytest.raises(ValueError, match="tolerance"):
        export(network, out, (64, 64))
    assert out.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [out]


def test_a_layer_that_cannot_be_recorded_is_named(tmp_path):
    class Counting(nn.Module):
        def forward(self, x):
            return x[:, :, : int(x.sum())]

    with pytest.raises(ValueError, match="cannot record Counting") as error:
        export(Exportable(Model(nn.Sequential(Counting())), backbone_only=True), tmp_path / "model.onnx", (64, 64))
    assert "--size" not in str(error.value)


class Columns(nn.Module):
    def forward(self, x):
        return (torch.arange(x.shape[2] * x.shape[3]) % x.shape[3]).float()


def test_remainders_of_a_free_side(tmp_path):
    differences = export(Exportable(Model(Columns()), True), tmp_path / "model.onnx", (64, 96), dynamic=True)
    assert set(differences.values()) == {0}


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_size_at_which_a_model_or_its_file_fails_is_named(is_broken, tmp_path, monkeypatch):
    network = nn.Conv2d(3, 4, 3) if is_broken else nn.Unflatten(2, (-1, 2))  # pairs, which odd sides do not have
    monkeypatch.setattr(module, "_load", lambda *_: lambda image: 1 / 0)
    with pytest.raises(ValueError, match="--size H W"):
        export(Exportable(Model(network), backbone_only=True), tmp_path / "model.onnx", (64, 96), dynamic=not is_broken)


class Detector(EndToEnd):
    """Detections that do not depend on the image."""

    def __init__(self, *outputs):
        nn.Module.__init__(self)
        self.task, self.preprocess, self.found = "detection", SimpleNamespace(uint8=False), outputs

    def forward(self, image):
        return self.found


FOUND = (
    torch.tensor([[8.0, 4, 40, 36], [0, 0, 9, 9]]),
    torch.tensor([0.9, 0.5]),
    torch.tensor([1, 0]),
    torch.rand(2, 5, 5),
)
NOTHING = tuple(part[:0] for part in FOUND)


@pytest.mark.parametrize(
    ("part", "change", "difference"),
    [(0, 9.6, 0.1), (1, np.nan, np.nan), (2, 0, 0.0), (2, 5, 1.0), (3, 0.25, 0.25)],
)
def test_each_part_of_the_detections_is_compared(part, change, difference):
    found = [output.clone() for output in FOUND]
    found[part] += change
    different = largest_difference(Detector(*FOUND), lambda image: found, (64, 96))
    assert different == pytest.approx(difference, abs=1e-5, nan_ok=True)


def test_no_detections_prove_nothing():
    assert largest_difference(Detector(*NOTHING), lambda image: NOTHING, (64, 96)) is None
    assert largest_difference(Detector(*NOTHING), lambda image: FOUND, (64, 96)) == 1
    assert largest_difference(Detector(*FOUND), lambda image: NOTHING, (64, 96)) == 1


# --- metadata ----------------------------------------------------------------------------------------------------------------


def pipeline(*steps) -> Config:
    return Config(dict(test_dataloader=dict(dataset=dict(pipeline=[dict(type="LoadImageFromFile"), *steps]))))


@pytest.mark.parametrize(
    "steps",
    [
        [dict(type="Resize", scale_factor=2.0)],
        [dict(type="Pad", size_divisor=32)],
        [dict(type="Pad", size=(64, 64)), dict(type="Resize", scale=64)],
    ],
)
def test_steps_that_the_runtime_does_not_have_are_named(steps):
    with pytest.raises(ValueError, match=f"{steps[-1]['type']}.*--raw"):
        reading_steps(pipeline(*steps))


KEEP = dict(type="Resize", scale=(96, 64), keep_ratio=True)


@pytest.mark.parametrize(
    ("steps", "size"),
    [
        ([dict(type="Resize", scale=(96, 64))], (64, 96)),  # pipelines name the width first
        ([dict(type="CenterCrop", crop_size=(96, 64))], (64, 96)),
        ([dict(type="mmpretrain.EfficientNetCenterCrop", crop_size=64)], (64, 64)),
        ([KEEP], None),
        ([KEEP, dict(type="Pad", size=(96, 96))], (96, 96)),
        ([KEEP, dict(type="Pad", size=(96, 64))], None),  # an image may be higher than wide
        ([dict(KEEP, scale=96), dict(type="Pad", pad_to_square=True)], (96, 96)),
        ([KEEP, dict(type="Pad", pad_to_square=True)], None),
    ],
)
def test_the_size_of_every_image(steps, size):
    assert final_size(pipeline(*steps), SimpleNamespace(task="detection")) == size


@pytest.mark.parametrize("size", [(90, 71), (61, 120)])
def test_the_crop_of_efficientnet(size):
    step, picture = dict(type="mmpretrain.EfficientNetCenterCrop", crop_size=64), np.random.default_rng(0)
    picture = picture.integers(0, 256, (*size, 3), dtype=np.uint8)
    ((name, options),) = reading_steps(pipeline(step))
    expected = Compose([step])(dict(img=picture))["img"]
    np.testing.assert_array_equal(runtime.STEPS[name](picture, **options), expected)


def test_a_padded_segmentor_is_refused():
    with pytest.raises(ValueError, match="Pad"):
        final_size(pipeline(dict(type="Pad", size=(96, 96))), SimpleNamespace(task="segmentation"))


@pytest.mark.parametrize(
    ("step", "size"),
    [
        (dict(type="Pad", size=(128, 96), pad_val=dict(img=(10, 20, 30))), (96, 128)),
        (dict(type="Pad", pad_to_square=True, pad_val=dict(img=(114.0, 114.0, 114.0))), (96, 96)),
    ],
)
def test_images_are_padded_as_the_pipeline_pads_them(step, size, tmp_path):
    """RTMDet and YOLOX pad with pixels that the network does not make zero."""
    cfg = load_config("rtmdet_castling_lcnet_demo.py")
    *_, pack = cfg.test_dataloader.dataset.pipeline
    steps = [dict(type="Resize", scale=(96, 96), keep_ratio=True), step]
    cfg.test_dataloader.dataset.pipeline = [dict(type="LoadImageFromFile"), *steps, pack]
    model = build("rtmdet_castling_lcnet")
    metadata = describe(cfg, EndToEnd(model), {})
    metadata = {key.removeprefix("mmlisa_"): json.loads(text) for key, text in metadata.items()}
    assert not metadata["clip"], "MMDetection takes the padded image for the whole"
    file = write_model(tmp_path / "model.onnx", dict(boxes=np.zeros((0, 4), np.float32)), **metadata)
    picture = np.random.default_rng(0).integers(0, 256, (76, 96, 3), dtype=np.uint8)  # nothing to resize
    prepared, inside = runtime.load(file).prepare(picture)
    shape = dict(img_shape=(76, 96), ori_shape=(76, 96), img_path="", img_id=0)
    data = Compose([*steps, pack])(dict(img=np.ascontiguousarray(picture[..., ::-1]), **shape))
    expected = model.data_preprocessor(dict(inputs=[data["inputs"]], data_samples=[data["data_samples"]]))["inputs"]
    np.testing.assert_allclose(prepared, expected, atol=1e-5)
    assert (prepared.shape[2:], inside) == (size, (76, 96))


def test_channels_and_thresholds_are_those_of_the_model():
    model = build("mask_rcnn_hylisanet")
    model.data_preprocessor._channel_conversion = False
    model.roi_head.test_cfg.mask_thr_binary = 0.3
    found = describe(load_config("mask_rcnn_hylisanet_demo.py"), EndToEnd(model), {})
    assert (found["mmlisa_channels"], found["mmlisa_mask_threshold"]) == ('"BGR"', "0.3")
