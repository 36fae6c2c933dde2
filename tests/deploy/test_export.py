"""Exports give what the model gives."""

import json
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from torch import nn
from torch.torch_version import TorchVersion

from helpers.exported import write_model
from mmlisa.deploy import export as module
from mmlisa.deploy import runtime
from mmlisa.deploy.export import Exportable, describe, export, final_size, largest_difference, reading_steps
from mmlisa.deploy.inference import as_loaded
from mmlisa.deploy.results import Prepare, Results, WithResults
from mmlisa.models.backbones import FLattenSwin, LCNet, LiSANet
from mmlisa.training.building import build_model
from mmlisa.training.config import load_config

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8, and say so"),
]


class Model(nn.Module):
    """As much of a classifier as the export looks at."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = lambda maps: maps[-1].mean((2, 3))

    def extract_feat(self, image):
        return self.backbone(image)


def lisanet() -> nn.Module:
    torch.manual_seed(0)
    arch = dict(base="small", depths=(1, 1), channels=(8, 16), num_heads=(1, 2), strides=(4, 2), mlp_ratios=(2, 2))
    return LiSANet(dict(arch, mixers="CL"), image_size=64)


# The kernels' own grid, and one smaller along one axis and larger along the other.
@pytest.mark.parametrize("size", [(64, 64), (40, 72)])
def test_onnx_equals_pytorch(size, tmp_path):
    module = Exportable(Model(lisanet()))
    export(module, tmp_path / "model.onnx", size)
    assert largest_difference(module, tmp_path / "model.onnx", size) < 1e-4
    with pytest.raises(ValueError, match=r"takes images of .* only"):
        largest_difference(module, tmp_path / "model.onnx", (128, 128))


def flatten_swin() -> nn.Module:
    return FLattenSwin(
        dict(base="tiny", depths=(1, 1, 1, 1), channels=(8, 16, 32, 64), num_heads=(1, 2, 4, 8)), image_size=32
    )


NETWORKS = {"LCNet": lambda: LCNet("x0.25"), "LiSANet": lisanet, "FLattenSwin": flatten_swin}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_onnxruntime_folds_what_is_constant(network, tmp_path):
    """Batch norms vanish in convolutions; LiSA's kernels and position tables are prepared when the file is loaded."""
    import onnx
    import onnxruntime

    export(Exportable(Model(network())), tmp_path / "model.onnx", (64, 64))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 2  # warnings, of which there are none
    onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    operators = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert not operators & {"BatchNormalization", "CastLike", "Expand", "GatherND", "Neg", "Range", "Resize"}


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_one_file_for_all_sizes(suffix, tmp_path):
    module, out = Exportable(Model(lisanet()), backbone_only=True), (tmp_path / "model").with_suffix(suffix)
    export(module, out, (96, 80), dynamic=True)
    for size in ((96, 80), (40, 104), (128, 64)):
        assert largest_difference(module, out, size) < 1e-4


# A classifier, a segmentor, and detectors of one stage and of two.
@pytest.mark.parametrize(
    "name", ["classifier_hylisanet", "semantic_fpn_hylisanet", "mask_rcnn_hylisanet", "picodet_castling_lcnet"]
)
def test_whole_models(name, tmp_path):
    module = Exportable(build_model(load_config(f"{name}_demo.py")))
    export(module, tmp_path / "model.onnx", (64, 96))
    assert largest_difference(module, tmp_path / "model.onnx", (64, 96)) < 1e-4


def test_a_difference_is_noticed(tmp_path):
    module = Exportable(Model(LCNet("x0.25")))
    export(module, tmp_path / "model.onnx", (64, 64))
    assert largest_difference(module, tmp_path / "model.onnx", (64, 64)) < 1e-4
    with torch.no_grad():
        [p for p in module.parameters() if p.ndim == 4][-1].mul_(1.1)
    assert largest_difference(module, tmp_path / "model.onnx", (64, 64)) > 1e-2


@pytest.mark.parametrize(("threshold", "count", "difference"), [(1.0, 0, None), (0.0, 0, 1.0), (1.0, 1, 1.0)])
def test_detections_of_a_model_that_detects_nothing(threshold, count, difference, tmp_path):
    """No detections on both sides are no proof of equality; detections on one side are a difference."""
    options = {"model.test_cfg.score_thr": threshold}
    model = build_model(load_config("picodet_castling_lcnet_demo.py", options=options))
    outputs = dict(
        boxes=np.zeros((count, 4), np.float32), scores=np.ones(count, np.float32), labels=np.zeros(count, int)
    )
    file = write_model(tmp_path / "model.onnx", outputs)
    assert largest_difference(WithResults(Prepare(model, False), Results(model)), file, (64, 96)) == difference


@pytest.mark.parametrize(
    ("part", "change", "difference"),
    [(3, 0.25, 0.25), (3, np.nan, np.nan), (1, np.nan, np.nan), (1, 0.5, 0.5), (2, 0, 0.0)],
)
def test_each_part_of_the_detections_is_compared(part, change, difference, monkeypatch):
    options = {"model.test_cfg.rcnn.score_thr": 0.0, "model.test_cfg.rcnn.max_per_img": 3}
    model = build_model(load_config("mask_rcnn_hylisanet_demo.py", options=options))
    results = WithResults(Prepare(model, False), Results(model))

    def changed(out, image):
        found = [output.clone() for output in results(image)]
        found[part] += change
        return found

    monkeypatch.setattr(module, "_run", changed)
    assert largest_difference(results, None, (64, 96)) == pytest.approx(difference, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("outputs", [(np.nan, 1.0), (1.0, np.nan)])
def test_a_map_that_is_not_a_number_is_noticed(outputs, monkeypatch):
    monkeypatch.setattr(module, "_run", lambda out, image: [image * factor for factor in outputs])
    assert np.isnan(largest_difference(lambda image: [image, image], None, (64, 64)))


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"model\.pb"):
        export(nn.Identity(), tmp_path / "model.pb", (64, 64))


def test_an_older_pytorch_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.7.1"))
    with pytest.raises(ImportError, match=r"need PyTorch 2\.8 or newer, this is 2\.7\.1"):
        export(nn.Identity(), tmp_path / "model.onnx", (64, 64))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (dict(type="Resize", scale=64, interpolation="nearest"), "the runtime resizes by bilinear, bicubic, and with"),
        (
            dict(type="mmdet.Resize", scale=(64, 96), backend="pillow", interpolation="area"),
            "hamming, bicubic, lanczos;",
        ),
        (dict(type="ResizeEdge", scale=64, interpolation="lanczos"), "the runtime resizes by"),
        (dict(type="Resize", scale_factor=2.0), "the runtime does not have the step"),
        (dict(type="CenterCrop", crop_size=64, auto_pad=True), "the runtime does not have the step .*auto_pad"),
        (dict(type="Pad", pad_to_square=True), "the runtime does not have the step .*pad_to_square"),
        (dict(type="Pad", size_divisor=32), "the runtime does not have the step .*size_divisor"),
        (dict(type="Pad", size=(64, 64), padding_mode="reflect"), "the runtime does not have the step .*reflect"),
        (dict(type="Pad", size=(64, 64)), "step .*Resize.* changes the image after Pad"),
        (dict(type="LoadImageFromFile", color_type="unchanged"), "the runtime does not have the step .*color_type"),
        (dict(type="LoadImageFromFile", imdecode_backend="tifffile"), "the runtime does not have the step .*tifffile"),
        (dict(type="LoadImageFromFile", to_float32=True), "the runtime does not have the step .*to_float32"),
    ],
)
def test_steps_that_the_runtime_does_not_have(step, words):
    pipeline = [dict(type="LoadImageFromFile"), step, dict(type="Resize", scale=64)]
    cfg = Config(dict(test_dataloader=dict(dataset=dict(pipeline=pipeline))))
    with pytest.raises(ValueError, match=words):
        reading_steps(cfg)


def test_loading_as_float_changes_nothing_without_resizing():
    pipeline = [dict(type="LoadImageFromFile", to_float32=True), dict(type="CenterCrop", crop_size=64)]
    cfg = Config(dict(test_dataloader=dict(dataset=dict(pipeline=pipeline))))
    assert reading_steps(cfg) == [dict(step="crop", size=[64, 64])]


@pytest.mark.parametrize(
    ("step", "size"),
    [
        (dict(type="Resize", scale=(96, 64)), (64, 96)),
        (dict(type="Resize", scale=48), (48, 48)),
        (dict(type="CenterCrop", crop_size=(96, 64)), (64, 96)),
        (dict(type="Resize", scale=(96, 64), keep_ratio=True), None),
        (dict(type="ResizeEdge", scale=64), None),
    ],
)
def test_the_size_of_every_image_is_height_and_width(step, size):
    """Pipelines name the width first."""
    cfg = Config(dict(test_dataloader=dict(dataset=dict(pipeline=[dict(type="LoadImageFromFile"), step]))))
    assert final_size(cfg, SimpleNamespace(task="segmentation")) == size


@pytest.mark.parametrize(
    ("step", "size", "value"),
    [
        (dict(type="Pad", size=(128, 96), pad_val=dict(img=(10, 20, 30))), (96, 128), [30, 20, 10]),
        (dict(type="Pad", size=(128, 96), pad_val=7), (96, 128), [7, 7, 7]),
        (dict(type="Pad", pad_to_square=True, pad_val=dict(img=(114.0, 114.0, 114.0))), (96, 96), [114, 114, 114]),
    ],
)
def test_images_are_padded_as_the_pipeline_pads_them(step, size, value, tmp_path):
    """By RTMDet's and YOLOX's recipes, with pixels that the network does not make zero."""
    cfg = load_config("rtmdet_castling_lcnet_demo.py")
    *_, pack = cfg.test_dataloader.dataset.pipeline
    steps = [dict(type="Resize", scale=(96, 96), keep_ratio=True), step]
    cfg.test_dataloader.dataset.pipeline = [dict(type="LoadImageFromFile"), *steps, pack]
    model = build_model(cfg)
    results = WithResults(Prepare(model), Results(model))
    assert final_size(cfg, results[1]) == size
    metadata = {key.removeprefix("mmlisa_"): json.loads(text) for key, text in describe(cfg, results, {}).items()}
    assert (metadata["border"], metadata.pop("outputs")) == (value, ["boxes", "scores", "labels"])
    assert not metadata["clip"], "MMDetection takes the padded image for the whole"
    file = write_model(tmp_path / "model.onnx", dict(boxes=np.zeros((0, 4), np.float32)), **metadata)
    picture = np.random.default_rng(0).integers(0, 256, (76, 96, 3), dtype=np.uint8)  # nothing to resize
    prepared, inside = runtime.load(file).prepare(picture)
    data = Compose([*steps, pack])(as_loaded(picture))
    expected = model.data_preprocessor(dict(inputs=[data["inputs"]], data_samples=[data["data_samples"]]))["inputs"]
    np.testing.assert_allclose(prepared, expected, atol=1e-5)
    assert (prepared.shape[2:], inside) == (size, (76, 96))
    assert np.abs(prepared[0, :, -1]).min() > 0.01


@pytest.mark.parametrize(
    ("steps", "size"),
    [
        ([dict(type="Resize", scale=(96, 64), keep_ratio=True), dict(type="Pad", size=(96, 96))], (96, 96)),
        # In the other orientation, the image is 96 pixels high.
        ([dict(type="Resize", scale=(96, 64), keep_ratio=True), dict(type="Pad", size=(96, 64))], None),
        ([dict(type="ResizeEdge", scale=64), dict(type="Pad", size=(96, 96))], None),
        ([dict(type="Pad", size=(96, 96))], None),
    ],
)
def test_padding_fixes_the_size_if_every_image_fits(steps, size):
    cfg = Config(dict(test_dataloader=dict(dataset=dict(pipeline=[dict(type="LoadImageFromFile"), *steps]))))
    assert final_size(cfg, SimpleNamespace(task="detection")) == size
    with pytest.raises(ValueError, match=r"step Pad .*: MMSegmentation stretches the padded maps"):
        final_size(cfg, SimpleNamespace(task="segmentation"))


def test_a_file_names_the_commit_of_its_own_clone_only(monkeypatch, tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setattr(module, "__file__", str(tmp_path / "mmlisa" / "deploy" / "export.py"))
    assert module._commit() == head
    monkeypatch.setattr(module, "__file__", str(tmp_path / "venv" / "mmlisa" / "deploy" / "export.py"))
    (tmp_path / "venv").mkdir()
    assert module._commit() is None, "an installed package inside another repository"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "mmlisa" / "deploy" / "export.py"))
    assert module._commit() is None, "without git"


def test_channels_and_thresholds_are_those_of_the_model():
    cfg = load_config("mask_rcnn_hylisanet_demo.py")
    model = build_model(cfg)
    model.data_preprocessor._channel_conversion = False
    model.roi_head.test_cfg.mask_thr_binary = 0.3
    found = describe(cfg, WithResults(Prepare(model), Results(model)), {})
    assert (found["mmlisa_channels"], found["mmlisa_mask_threshold"]) == ('"BGR"', "0.3")


def test_a_mistake_in_a_model_is_not_one_of_its_sizes():
    class Broken(nn.Module):
        def forward(self, image):
            return image.no_such_method()

    with pytest.raises(AttributeError, match="no_such_method"):
        module._record(Broken(), (torch.zeros(1, 3, 64, 96),), {"image": {2: torch.export.Dim.DYNAMIC}})
