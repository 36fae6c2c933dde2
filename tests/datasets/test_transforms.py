"""Damaged image files are named, skipped or refused."""

import cv2
import numpy as np
import pytest

from mmlisa.datasets.transforms import LoadImageFromFile


@pytest.fixture(params=[".jpg", ".png"])
def image(request, tmp_path):
    path = tmp_path / f"image{request.param}"
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    cv2.imwrite(str(path), noise)
    return path


def damage(path, how):
    content = path.read_bytes()
    path.write_bytes({"truncated": content[: len(content) // 2], "empty": b"", "text": b"no image at all"}[how])


def test_whole_image(image):
    assert LoadImageFromFile().transform({"img_path": str(image)})["img"].shape == (64, 64, 3)


@pytest.mark.parametrize("how", ["truncated", "empty", "text"])
def test_damaged_image(image, how):
    damage(image, how)
    with pytest.raises(ValueError, match=f"image{image.suffix} is damaged"):
        LoadImageFromFile().transform({"img_path": str(image)})
    assert LoadImageFromFile(on_corrupt="skip").transform({"img_path": str(image)}) is None


def test_jpeg_damaged_in_the_middle(tmp_path, capfd):
    path = tmp_path / "image.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    cv2.imwrite(str(path), noise)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"image\.jpg is damaged: Corrupt JPEG data"):
        LoadImageFromFile().transform({"img_path": str(path)})
    assert LoadImageFromFile(on_corrupt="skip").transform({"img_path": str(path)}) is None


def test_bad_option():
    with pytest.raises(ValueError, match="ignore"):
        LoadImageFromFile(on_corrupt="ignore")
