"""The runtime reads images as the test pipelines do."""

import io
import itertools

import cv2
import mmcv
import numpy as np
import pytest
import torch
from PIL import Image

from helpers.exported import KEEP_RATIO, odd_images
from mmlisa import runtime


@pytest.mark.parametrize(("method", "backend"), [("bilinear", "cv2"), ("area", "cv2"), ("bicubic", "pillow")])
def test_images_are_read_and_resized_as_mmcv_does_it(method, backend, tmp_path):
    step = dict(KEEP_RATIO, interpolation=method, backend=backend)
    for path in odd_images(tmp_path):
        expected = mmcv.imread(str(path))[..., ::-1]
        found = runtime.read_image(path)
        np.testing.assert_array_equal(found, expected, err_msg=path.name)
        expected = mmcv.imrescale(expected, (96, 64), interpolation=method, backend=backend)
        np.testing.assert_array_equal(runtime.STEPS["Resize"](found, **step), expected, err_msg=path.name)


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


def test_16_bits_and_turned_files(tmp_path):
    """A Pillow image is what its file is; OpenCV's imread does not read the TIFF."""
    values = np.arange(48 * 64).reshape(48, 64).astype(np.uint16) * 20
    cv2.imwrite(str(tmp_path / "a.png"), values)
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(runtime.read_image(picture), runtime.read_image(tmp_path / "a.png"))
    with pytest.raises(ValueError, match="mode 'F'"):
        runtime.read_image(Image.fromarray(np.float32(values)))
    Image.fromarray(values.astype(np.uint8)).save(tmp_path / "b.tif", tiffinfo={0x0112: 6})
    assert runtime.read_image(tmp_path / "b.tif").shape == (64, 48, 3)


def test_contents_tensors_and_open_files(tmp_path):
    picture = np.random.default_rng(0).integers(0, 255, (9, 7, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    with open(tmp_path / "a.png", "rb") as file:
        given = [content, bytearray(content), io.BytesIO(content), file, torch.from_numpy(picture).permute(2, 0, 1)]
        for image in given:
            np.testing.assert_array_equal(runtime.read_image(image), picture)
    with open(tmp_path / "a.png", errors="ignore") as file, pytest.raises(ValueError, match="'rb'"):
        runtime.read_image(file)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8, 3), np.float32),
        np.zeros((3, 8, 8), np.uint8),
        np.zeros((0, 8, 3), np.uint8),
        torch.zeros(3, 8, 8),
        torch.zeros(8, 8, 3, dtype=torch.uint8),
        "none.png",
        "http://127.0.0.1/a.png",
        b"",
        b"no image",
        None,
        5,
    ],
)
def test_wrong_images_are_named(image):
    with pytest.raises(ValueError, match="image"):
        runtime.read_image(image)
