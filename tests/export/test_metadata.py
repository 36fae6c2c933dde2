"""Test pipelines become steps of the runtime."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.dataset import Compose

from helpers.exported import write_model
from helpers.whole_models import build
from mmlisa import runtime
from mmlisa.export.metadata import describe, final_size, reading_steps
from mmlisa.export.whole import EndToEnd
from mmlisa.training.config import load_config


def pipeline(*steps) -> Config:
    return Config(dict(test_dataloader=dict(dataset=dict(pipeline=[dict(type="LoadImageFromFile"), *steps]))))


@pytest.mark.parametrize(
    "steps",
    [
        [dict(type="Resize", scale_factor=2.0)],
        [dict(type="EfficientNetCenterCrop", crop_size=64)],
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
        ([dict(type="mmpretrain.CenterCrop", crop_size=64)], (64, 64)),
        ([KEEP], None),
        ([KEEP, dict(type="Pad", size=(96, 96))], (96, 96)),
        ([KEEP, dict(type="Pad", size=(96, 64))], None),  # an image may be higher than wide
        ([dict(KEEP, scale=96), dict(type="Pad", pad_to_square=True)], (96, 96)),
        ([KEEP, dict(type="Pad", pad_to_square=True)], None),
    ],
)
def test_the_size_of_every_image(steps, size):
    assert final_size(pipeline(*steps), SimpleNamespace(task="detection")) == size


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
