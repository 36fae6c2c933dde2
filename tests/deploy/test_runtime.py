"""The runtime of exported files: it reads images as the test pipelines do, and needs neither PyTorch nor OpenMMLab."""

import itertools
import json
import shutil
import struct
import subprocess
import tracemalloc
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest
import torch
from PIL import Image

from helpers.exported import BOX, KEEP_RATIO, MASK, detector, odd_images, write_model
from helpers.folders import TURNED_XMP
from mmlisa.deploy import runtime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

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


@pytest.mark.parametrize("size", [(37, 51), (150, 20)])
def test_logits_are_resized_before_the_class_is_chosen(size, tmp_path):
    logits = np.random.default_rng(0).normal(size=(1, 3, 12, 20)).astype(np.float32)
    path = write_model(tmp_path / "m.onnx", dict(logits=logits), task="segmentation", steps=[])
    model = runtime.load(path)
    found = model.finish([logits], (12, 20), size).segmentation
    resized = torch.nn.functional.interpolate(torch.from_numpy(logits), size, mode="bilinear")
    assert (found == resized.argmax(1)[0].numpy()).mean() > 0.999


def test_logits_of_a_large_image_are_never_in_memory_at_once(tmp_path):
    logits = np.random.default_rng(0).normal(size=(1, 50, 8, 8)).astype(np.float32)
    model = runtime.load(write_model(tmp_path / "m.onnx", dict(logits=logits), task="segmentation", steps=[]))
    tracemalloc.start()
    try:
        model.finish([logits], (8, 8), (600, 800))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 * 600 * 800 * 4 / 2  # bytes of all logits at that size


def test_the_padding_of_logits_is_cut_off(tmp_path):
    logits = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    model = runtime.load(write_model(tmp_path / "m.onnx", dict(logits=logits), task="segmentation", steps=[]))
    found = model.finish([logits], (12, 20), (12, 20)).segmentation
    np.testing.assert_array_equal(found, logits[0, :, :12, :20].argmax(0))


def test_probabilities(tmp_path):
    path = write_model(tmp_path / "m.onnx", dict(p=np.float32([[0.25, 0.75]])), task="classification")
    assert runtime.load(path).predict(np.zeros((50, 60, 3), np.uint8)).probabilities.tolist() == [0.25, 0.75]


def test_another_engine_takes_the_place_of_onnxruntime(tmp_path):
    loaded = runtime.load(detector(tmp_path / "m.onnx"))
    metadata = {f"mmlisa_{key}": json.dumps(value) for key, value in loaded.metadata.items()}
    seen = []
    model = runtime.Model(tmp_path, metadata, [1, 3, None, None], lambda image: seen.append(image) or loaded.run(image))
    assert len(model.predict(np.zeros((64, 96, 3), np.uint8)).boxes) == 1
    assert seen[0].shape == (1, 3, 64, 96)


# --- reading -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_images_are_read_as_mmcv_reads_them(method, tmp_path):
    paths = odd_images(tmp_path)
    assert len(paths) == 10
    step = dict(KEEP_RATIO, method=method)
    for path in paths:
        expected = mmcv.imread(str(path))[..., ::-1]
        found = runtime.read_image(path)
        np.testing.assert_array_equal(found, expected, err_msg=path.name)
        expected = mmcv.imrescale(expected, (96, 64), interpolation=method)
        resized = runtime._STEPS["resize"](found, step).astype(int)
        assert resized.shape == expected.shape
        assert np.abs(resized - expected).max() <= 1
        assert (resized != expected).mean() < (0.01 if method == "bilinear" else 0.1)


def test_sides_are_rounded_as_mmcv_rounds_them():
    """As in a pipeline, where a side that is one pixel shorter moves every box."""
    step = dict(scale=(33, 20), keep_ratio=True, backend="cv2", method="bilinear")
    for width, height in itertools.product(range(5, 60, 3), range(4, 60, 3)):
        found = runtime._STEPS["resize"](np.zeros((height, width, 3), np.uint8), step)
        assert found.shape[1::-1] == mmcv.rescale_size((width, height), (33, 20)), (width, height)


@pytest.mark.parametrize("entry", [b"garbage", b"II*\0"])
def test_a_damaged_exif_entry_is_ignored(entry, tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png", exif=b"Exif\0\0" + entry)
    expected = mmcv.imread(str(tmp_path / "a.png"))[..., ::-1]
    np.testing.assert_array_equal(runtime.read_image(tmp_path / "a.png"), expected)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("entry", [(0x011A, b"72\0\0"), (0x0128, b"2\0\0\0")])  # the resolution and its unit, as text
def test_images_are_turned_as_mmcv_turns_them(orientation, entry, tmp_path):
    tag, text = entry
    entries = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0), struct.pack("<HHI4s", tag, 2, len(text), text)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + b"".join(sorted(entries)) + bytes(4)
    picture = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    expected = mmcv.imread(str(tmp_path / "a.png"))[..., ::-1]
    np.testing.assert_array_equal(runtime.read_image(tmp_path / "a.png"), expected)
    assert expected.shape == ((9, 7, 3) if 5 <= orientation <= 8 else (7, 9, 3))


def test_an_orientation_in_xmp_turns_nothing(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.jpg", xmp=TURNED_XMP)
    expected = mmcv.imread(str(tmp_path / "a.jpg"))[..., ::-1]
    assert expected.shape == (7, 9, 3)
    np.testing.assert_array_equal(runtime.read_image(tmp_path / "a.jpg"), expected)


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_turned_tiff_is_turned_once(orientation, tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(picture).save(tmp_path / "a.tif", exif=exif)
    expected = mmcv.imread(str(tmp_path / "a.tif"))[..., ::-1]
    np.testing.assert_array_equal(runtime.read_image(tmp_path / "a.tif"), expected)
    with Image.open(tmp_path / "a.tif") as opened:  # Pillow has not decoded it yet
        np.testing.assert_array_equal(runtime.read_image(opened), expected)


def test_the_steps_of_classifiers_are_mmpretrains():
    from mmengine.registry import init_default_scope
    from mmpretrain.registry import TRANSFORMS

    init_default_scope("mmpretrain")
    picture = cv2.resize(np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8), (101, 77))
    image = dict(img=picture, img_shape=(77, 101), ori_shape=(77, 101))
    for edge in ("short", "long", "width", "height"):
        options = dict(scale=64, edge=edge, backend="pillow", interpolation="bicubic")
        expected = TRANSFORMS.build(dict(type="ResizeEdge", **options))(dict(image))
        expected = TRANSFORMS.build(dict(type="CenterCrop", crop_size=(45, 50)))(expected)["img"]
        found = runtime._STEPS["resize_edge"](picture, dict(options, method="bicubic"))
        np.testing.assert_array_equal(runtime._STEPS["crop"](found, dict(size=[45, 50])), expected)


def test_a_fixed_file_pads_what_is_smaller_and_refuses_what_is_larger(tmp_path):
    model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 96), steps=[]))
    prepared, size = model.prepare(np.full((50, 90, 3), 255, np.uint8))
    assert (prepared.shape, size) == ((1, 3, 64, 96), (50, 90))
    assert not prepared[..., 50:, :].any()
    with pytest.raises(
        ValueError, match=r"takes images of 64x96 \(H, W\) only, and this one has 65x90 .* --size 96 96"
    ):
        model.prepare(np.zeros((65, 90, 3), np.uint8))


# --- mistakes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (np.zeros((8, 8, 3), np.float32), ValueError, r"float32 of shape \(8, 8, 3\); an array must be uint8"),
        (np.zeros((3, 8, 8), np.uint8), ValueError, r"of shape \(3, 8, 8\)"),
        ("none.png", FileNotFoundError, "'none.png' does not exist"),
        (None, TypeError, "a NoneType; it must be a file name"),
    ],
)
def test_wrong_images_are_named(image, error, message):
    with pytest.raises(error, match=message):
        runtime.read_image(image)


def test_wrong_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"suffix '\.pt2'"):
        runtime.load(tmp_path / "m.pt2")
    with pytest.raises(FileNotFoundError, match=r"m\.onnx' does not exist"):
        runtime.load(tmp_path / "m.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(ValueError, match=r"text\.onnx' is not an ONNX file"):
        runtime.load(tmp_path / "text.onnx")
    foreign = detector(tmp_path / "foreign.onnx")
    model = onnx.load(foreign)
    del model.metadata_props[:]
    onnx.save(model, foreign)
    with pytest.raises(ValueError, match="has no metadata of mmlisa"):
        runtime.load(foreign)
    with pytest.raises(ValueError, match="has format 2; update mmlisa"):
        runtime.load(detector(tmp_path / "new.onnx", format=2))
    with pytest.raises(ValueError, match="classifies clips"):
        runtime.load(detector(tmp_path / "video.onnx", task="video")).predict(np.zeros((8, 8, 3), np.uint8))


def test_it_runs_where_only_numpy_pillow_and_onnxruntime_are(tmp_path):
    """In an environment of its own, from a copy of the one file."""
    if not shutil.which("uv"):
        pytest.skip("needs uv")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(["uv", "venv", "-q", str(tmp_path / "venv")], check=True)
    install = ["uv", "pip", "install", "-q", "--python", str(python), "numpy", "pillow", "onnxruntime"]
    if subprocess.run(install, capture_output=True).returncode:
        pytest.skip("the packages cannot be installed here")
    shutil.copy(runtime.__file__, tmp_path / "runtime.py")
    detector(tmp_path / "model.onnx")
    Image.fromarray(np.zeros((128, 192, 3), np.uint8)).save(tmp_path / "image.png")
    code = (
        "import importlib.util, runtime; found = runtime.load('model.onnx').predict('image.png'); "
        "assert not any(importlib.util.find_spec(n) for n in ('torch', 'mmengine', 'mmcv', 'cv2', 'mmlisa')); "
        "print(found.boxes.tolist())"
    )
    done = subprocess.run([str(python), "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[2 * side for side in BOX]]


def test_the_file_is_short():
    """It is there to be copied and read."""
    assert len(Path(runtime.__file__).read_text().splitlines()) <= 250


def test_small_images_are_padded_below_and_to_the_right(tmp_path):
    model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 96), mean=[0] * 3, std=[1] * 3, steps=[]))
    image, size = model.prepare(np.full((50, 90, 3), 255, np.uint8))
    assert size == (50, 90)
    assert image.shape == (1, 3, 64, 96)
    assert image[..., :50, :90].all()
    assert not image[..., 50:, :].any()
    assert not image[..., 90:].any()


def test_integers_are_padded_with_what_the_network_makes_zero(tmp_path):
    path = detector(tmp_path / "m.onnx", shape=(1, 3, 64, 96), dtype="UINT8", uint8=True, channels="BGR", steps=[])
    image, _ = runtime.load(path).prepare(np.full((50, 90, 3), (1, 2, 3), np.uint8))
    assert image.dtype == np.uint8
    assert image[0, :, 0, 0].tolist() == [3, 2, 1]
    assert image[0, :, -1, -1].tolist() == [124, 116, 104]


def test_channels_are_exchanged_for_a_network_that_wants_it(tmp_path):
    for channels, expected in (("RGB", [1, 2, 3]), ("BGR", [3, 2, 1])):
        model = runtime.load(detector(tmp_path / "m.onnx", channels=channels, mean=[0] * 3, std=[1] * 3, steps=[]))
        assert model.prepare(np.full((64, 96, 3), (1, 2, 3), np.uint8))[0][0, :, 0, 0].tolist() == expected


def test_boxes_end_with_the_image(tmp_path):
    """The graph of a fixed size knows the padded image only. MMDetection's YOLOX does not clip."""
    for clip, bottom in ((True, 32), (False, 36)):
        model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 64), steps=[], clip=clip))
        np.testing.assert_allclose(model.predict(np.zeros((32, 40, 3), np.uint8)).boxes, [[8, 4, 40, bottom]])
