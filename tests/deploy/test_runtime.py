"""The runtime of exported files: it reads images as the test pipelines do, and needs neither PyTorch nor OpenMMLab."""

import itertools
import sys

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample

from helpers.exported import BOX, KEEP_RATIO, MASK, detector, odd_images
from helpers.whole_models import build, image, put_on_lcnet
from mmlisa.deploy import runtime
from mmlisa.deploy.export import EXAMPLE, describe, export
from mmlisa.deploy.inference import read_sample
from mmlisa.deploy.results import EndToEnd
from mmlisa.deploy.tiles import TiledDetector
from mmlisa.training.config import load_config

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

# --- backends ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["onnxruntime", "openvino"])
def test_either_backend_is_enough(missing, monkeypatch, tmp_path):
    if missing == "onnxruntime":
        pytest.importorskip("openvino")
    monkeypatch.setitem(sys.modules, missing, None)
    model = runtime.load(detector(tmp_path / "model.onnx"))
    assert model.predict(np.zeros((64, 96, 3), np.uint8)).labels.tolist() == [1]


@pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
@pytest.mark.parametrize(
    ("name", "dynamic"),
    [("mask_rcnn_hylisanet", False), ("semantic_fpn_hylisanet", True), ("classifier_hylisanet", False)],
)
def test_openvino_equals_onnxruntime(name, dynamic, tmp_path):
    pytest.importorskip("openvino")
    module, out = EndToEnd(build(name)), tmp_path / "model.onnx"
    metadata = describe(load_config(f"{name}_demo.py"), module, {}) | {"mmlisa_steps": "[]"}
    export(module, out, EXAMPLE, dynamic=dynamic, metadata=metadata)
    for size in (EXAMPLE, (101, 203)):
        picture = image(size)[0].permute(1, 2, 0).numpy().astype(np.uint8)
        found, expected = (
            vars(runtime.load(out, backend=backend).predict(picture, 0.0)) for backend in ("openvino", "onnxruntime")
        )
        for field, values in expected.items():
            if field in ("masks", "segmentation") and values is not None:  # rounding moves single pixels at thresholds
                assert (found[field] == values).mean() > 0.999
                assert len(np.unique(values)) > 1
            elif values is not None:
                scale = max(size) if field == "boxes" else 1
                np.testing.assert_allclose(found[field] / scale, values / scale, rtol=0, atol=1e-3, err_msg=field)
                assert len(values) > 2


# --- tiles -------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
def test_tiles_of_a_file_equal_those_of_the_tiled_detector(tmp_path):
    model, out = build("mask_rcnn_hylisanet"), tmp_path / "model.onnx"
    module, cfg = EndToEnd(model), load_config("mask_rcnn_hylisanet_demo.py")
    export(module, out, (128, 128), metadata=describe(cfg, module, {}) | {"mmlisa_steps": "[]"})
    put_on_lcnet(cfg)
    tiled = TiledDetector(cfg.model, tile=128, overlap=0.25).eval()
    tiled.load_state_dict(model.state_dict())
    picture = image((230, 300))[0].permute(1, 2, 0).numpy().astype(np.uint8)
    inputs = torch.from_numpy(np.ascontiguousarray(picture[..., ::-1].transpose(2, 0, 1)))
    sample = DetDataSample(metainfo=dict(img_shape=(230, 300), ori_shape=(230, 300), scale_factor=(1.0, 1.0)))
    with torch.no_grad():
        (expected,) = tiled.test_step({"inputs": [inputs], "data_samples": [sample]})
    middle = expected.pred_instances.scores.sort().values[100:300]
    threshold = float(middle[(gap := middle.diff().argmax()) : gap + 2].mean())  # far from each score
    expected = read_sample(expected, threshold)
    found = runtime.load(out, backend="onnxruntime").predict(picture, threshold, tile=128, overlap=0.25)
    assert len(found.boxes) == len(expected.boxes) > 50
    # Detections of equal scores may change places.
    distance = np.abs(found.boxes[:, None] - expected.boxes).max(axis=2)
    distance += np.abs(found.scores[:, None] - expected.scores) * 1e3 + (found.labels[:, None] != expected.labels)
    assert max(distance.min(axis=1).max(), distance.min(axis=0).max()) < 0.1
    masks = [np.stack([runtime.decode_mask(mask) for mask in one.masks]) for one in (found, expected)]
    differences = masks[0] != masks[1][distance.argmin(axis=1)]
    assert differences.sum() < 1e-3 * masks[0].sum()


# --- results -----------------------------------------------------------------------------------------------------------------


def test_boxes_and_masks_are_those_of_the_original_image(tmp_path):
    model = runtime.load(detector(tmp_path / "model.onnx"))
    picture = np.zeros((128, 192, 3), np.uint8)  # twice the size of the resized one
    found = model.predict(picture)
    assert model.classes == ["cat", "dog"]
    np.testing.assert_allclose(found.boxes, 2 * np.float32([BOX]))
    assert found.labels.tolist() == [1]
    assert len(model.predict(picture, 0.1).boxes) == 2
    from mmdet.models.roi_heads.mask_heads.fcn_mask_head import _do_paste_mask

    box = torch.from_numpy(found.boxes)
    expected = _do_paste_mask(torch.from_numpy(MASK)[None, None], box, 128, 192, skip_empty=False)[0][0] >= 0.5
    assert (found.masks[0] == expected.numpy()).mean() > 0.9995
    assert 1000 < found.masks.sum() < 64 * 64


def test_boxes_end_with_the_image(tmp_path):
    """The graph of a fixed size knows the padded image only. MMDetection's YOLOX does not clip."""
    for clip, bottom in ((True, 32), (False, 36)):
        model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 64), steps=[], clip=clip))
        np.testing.assert_allclose(model.predict(np.zeros((32, 40, 3), np.uint8)).boxes, [[8, 4, 40, bottom]])


# --- reading -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "backend"), [("bilinear", "cv2"), ("area", "cv2"), ("bicubic", "pillow")])
def test_images_are_read_and_resized_as_mmcv_does_it(method, backend, tmp_path):
    step = dict(KEEP_RATIO, interpolation=method, backend=backend)
    for path in odd_images(tmp_path):
        expected = mmcv.imread(str(path))[..., ::-1]
        found = runtime.read_image(path)
        np.testing.assert_array_equal(found, expected, err_msg=path.name)
        expected = mmcv.imrescale(expected, (96, 64), interpolation=method, backend=backend)
        np.testing.assert_array_equal(runtime.STEPS["Resize"](found, **step), expected, err_msg=path.name)


def test_a_folder_with_a_video_is_read_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "notes.txt").write_text("")
    cv2.imwrite(str(tmp_path / "b" / "c.png"), np.full((48, 64, 3), (10, 20, 30), np.uint8))
    writer = cv2.VideoWriter(str(tmp_path / "a.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
    for value in (0, 200):
        writer.write(np.full((48, 64, 3), (value, 0, 0), np.uint8))  # blue, green, red
    writer.release()
    names, pictures = zip(*runtime.read_images(tmp_path), strict=True)
    assert names == (f"{tmp_path}/a.avi:0", f"{tmp_path}/a.avi:1", f"{tmp_path}/b/c.png")
    np.testing.assert_allclose(
        [picture.mean((0, 1)) for picture in pictures], [[0] * 3, [0, 0, 200], [30, 20, 10]], atol=3
    )
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"source.*broken\.mp4"):
        list(runtime.read_images(tmp_path / "broken.mp4"))


def test_a_large_image_is_resized_exactly():
    """B8: an imitation of OpenCV differed by 1 in some of the values at this size."""
    picture = np.random.default_rng(0).integers(0, 256, (1080, 1920, 3), dtype=np.uint8)
    expected = mmcv.imrescale(picture, (1333, 800))
    found = runtime.STEPS["Resize"](picture, [1333, 800], keep_ratio=True)
    np.testing.assert_array_equal(found, expected)


def test_sides_are_rounded_as_mmcv_rounds_them():
    """As in a pipeline, where a side that is one pixel shorter moves every box."""
    for width, height in itertools.product(range(5, 60, 3), range(4, 60, 3)):
        found = runtime.STEPS["Resize"](np.zeros((height, width, 3), np.uint8), (33, 20), keep_ratio=True)
        assert found.shape[1::-1] == mmcv.rescale_size((width, height), (33, 20)), (width, height)


def test_the_steps_of_classifiers_are_mmpretrains():
    from mmengine.registry import init_default_scope
    from mmpretrain.registry import TRANSFORMS

    init_default_scope("mmpretrain")
    picture = cv2.resize(np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8), (101, 77))
    image = dict(img=picture, img_shape=(77, 101), ori_shape=(77, 101))
    for edge in ("short", "long"):
        options = dict(scale=64, edge=edge, backend="pillow", interpolation="bicubic")
        expected = TRANSFORMS.build(dict(type="ResizeEdge", **options))(dict(image))
        expected = TRANSFORMS.build(dict(type="CenterCrop", crop_size=(45, 50)))(expected)["img"]
        found = runtime.STEPS["ResizeEdge"](picture, **options)
        np.testing.assert_array_equal(runtime.STEPS["CenterCrop"](found, [45, 50]), expected)


@pytest.mark.parametrize(
    ("options", "pixel", "border"),
    [
        (dict(mean=[0] * 3, std=[1] * 3), [1, 2, 3], [0, 0, 0]),
        (dict(mean=[0] * 3, std=[1] * 3, channels="BGR"), [3, 2, 1], [0, 0, 0]),
        # Integers are padded with what the network makes zero.
        (dict(dtype="UINT8", uint8=True, channels="BGR"), [3, 2, 1], [124, 116, 104]),
    ],
)
def test_a_fixed_file_pads_what_is_smaller_and_refuses_what_is_larger(options, pixel, border, tmp_path):
    model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 96), steps=[], **options))
    image, size = model.prepare(np.full((50, 90, 3), (1, 2, 3), np.uint8))
    assert (image.shape, size) == ((1, 3, 64, 96), (50, 90))
    np.testing.assert_array_equal(image[0, :, :50, :90].reshape(3, -1).T, [pixel] * 50 * 90)
    assert image[0, :, 50, 0].tolist() == image[0, :, 0, 90].tolist() == border
    with pytest.raises(ValueError, match="--size 96 96"):
        model.prepare(np.zeros((65, 90, 3), np.uint8))


# --- mistakes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [np.zeros((8, 8, 3), np.float32), np.zeros((3, 8, 8), np.uint8), "none.png"])
def test_wrong_images_are_named(image):
    with pytest.raises(ValueError, match="image"):
        runtime.read_image(image)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_wrong_files_are_named(backend, tmp_path):
    pytest.importorskip(backend)
    model = onnx.load(detector(tmp_path / "foreign.onnx"))
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(ValueError, match="metadata"):
        runtime.load(tmp_path / "foreign.onnx", backend=backend)
    with pytest.raises(ValueError, match="clips"):
        runtime.load(detector(tmp_path / "video.onnx", task="video")).predict(np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match="backend"):
        runtime.load(tmp_path / "video.onnx", backend="tensorrt")
