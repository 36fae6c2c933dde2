"""Damaged, oversized and unsupported image files are named, and refused or skipped."""

import io
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from PIL import Image

from mmlisa.datasets.transforms import BadImageError, LoadImageFromFile, find_fault

RNG = np.random.default_rng(0)
PIXELS = cv2.resize(RNG.integers(0, 255, (9, 12, 3), dtype=np.uint8), (96, 64), interpolation=cv2.INTER_CUBIC)
ENCODED = {
    "bmp": dict(format="BMP"),
    "jpg": dict(format="JPEG", quality=90),
    "progressive.jpg": dict(format="JPEG", quality=90, progressive=True),
    "png": dict(format="PNG"),
    "ppm": dict(format="PPM"),
}
REFUSED = {
    "webp": dict(format="WEBP", quality=90),
    "lossless.webp": dict(format="WEBP", lossless=True),
    "tif": dict(format="TIFF", compression="tiff_lzw"),
    "gif": dict(format="GIF"),
}


def encode(options: dict, pixels: np.ndarray = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, **options)
    return file.getvalue()


def load(tmp_path, content: bytes, name: str = "image", **options):
    path = tmp_path / name
    path.write_bytes(content)
    return LoadImageFromFile(**options).transform({"img_path": str(path)})


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("flag", ["color", "grayscale", "unchanged"])
def test_whole_images_are_those_of_opencv(tmp_path, name, flag):
    content = encode(ENCODED[name])
    flags = {"color": cv2.IMREAD_COLOR, "grayscale": cv2.IMREAD_GRAYSCALE, "unchanged": cv2.IMREAD_UNCHANGED}
    expected = cv2.imdecode(np.frombuffer(content, np.uint8), flags[flag])
    np.testing.assert_array_equal(load(tmp_path, content, color_type=flag)["img"], expected)


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "1", "I;16", "RGBA"])
def test_other_kinds_of_pixels_load(tmp_path, mode):
    image = Image.fromarray(PIXELS).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    file = io.BytesIO()
    image.save(file, format="JPEG" if mode in ("L", "CMYK") else "PNG")
    assert load(tmp_path, file.getvalue())["img"].shape == (64, 96, 3)


def test_the_orientation_in_a_photograph_is_kept(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    assert load(tmp_path, encode(dict(format="JPEG", exif=exif)))["img"].shape == (96, 64, 3)


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("how", ["truncated", "empty", "text"])
def test_damaged_files_are_refused_or_skipped(tmp_path, name, how):
    content = encode(ENCODED[name])
    content = {"truncated": content[: len(content) // 2], "empty": b"", "text": b"no image at all"}[how]
    with pytest.raises(BadImageError, match=r"a\.image is damaged: .*on_corrupt='skip'"):
        load(tmp_path, content, "a.image")
    assert load(tmp_path, content, on_corrupt="skip") is None


def test_a_jpeg_that_ends_between_two_scans_is_damaged():
    """It decodes without an error, coarser than it was; libjpeg warns of nothing but the missing end."""
    content = encode(ENCODED["progressive.jpg"])
    cut = content[: content.rindex(b"\xff\xda")]
    assert len(cut) > len(content) / 4
    assert "is damaged: Premature end" in find_fault(cut)


@pytest.mark.parametrize("name", ["jpg", "progressive.jpg", "png"])
def test_forty_zeros_in_the_middle_are_noticed(name):
    content = bytearray(encode(ENCODED[name], RNG.integers(0, 255, (64, 64, 3), dtype=np.uint8)))
    noticed = 0
    places = range(len(content) // 4, 3 * len(content) // 4, len(content) // 20)
    for place in places:
        damaged = content[:place] + bytes(40) + content[place + 40 :]
        noticed += "is damaged" in find_fault(bytes(damaged))
    assert noticed >= 0.9 * len(places)  # libjpeg takes some of them for other pixels


@pytest.mark.parametrize("name", REFUSED)
def test_formats_whose_damage_goes_unseen_are_unsupported_not_damaged(tmp_path, name):
    content = encode(REFUSED[name])
    with pytest.raises(BadImageError, match=rf"unsupported format {REFUSED[name]['format']}.*Convert it to PNG"):
        load(tmp_path, content)
    assert load(tmp_path, content, on_corrupt="skip") is None
    if "gif" not in name:  # OpenCV's builds differ in GIF
        assert load(tmp_path, content, formats=[REFUSED[name]["format"]])["img"].shape == (64, 96, 3)


def test_floating_point_tiff_is_unsupported_not_damaged(tmp_path):
    content = encode(dict(format="TIFF"), PIXELS[..., 0].astype(np.float32))
    with pytest.raises(BadImageError, match="floating-point pixels, which are unsupported"):
        load(tmp_path, content, formats=["TIFF"])


def bomb(side: int) -> bytes:
    """A PNG of side x side black pixels, by hand, of a few kB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    compress = zlib.compressobj(9)
    rows = compress.compress(bytes((1 + (side + 7) // 8) * side)) + compress.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_many_pixels_are_refused_by_the_header_alone(tmp_path, monkeypatch):
    content = bomb(32_000)
    assert len(content) < 200_000

    def fail(*args, **kwargs):
        raise AssertionError("decoded")

    monkeypatch.setattr("mmcv.imfrombytes", fail)
    monkeypatch.setattr(Image.Image, "load", fail)
    with pytest.raises(BadImageError, match=r"bomb\.png is too large"):
        load(tmp_path, content, "bomb.png")
    assert load(tmp_path, content, on_corrupt="skip") is None


def test_the_number_of_pixels_can_be_set(tmp_path):
    content = encode(ENCODED["png"])
    assert load(tmp_path, content, max_pixels=64 * 96)["img"].shape == (64, 96, 3)
    with pytest.raises(BadImageError, match="96 x 64 pixels are more than max_pixels=6143"):
        load(tmp_path, content, max_pixels=64 * 96 - 1)


def test_errors_of_opencv_are_covered(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise cv2.error("assertion failed")

    monkeypatch.setattr("mmcv.imfrombytes", fail)
    with pytest.raises(BadImageError, match="cannot be decoded"):
        load(tmp_path, encode(ENCODED["png"]))
    assert load(tmp_path, encode(ENCODED["png"]), on_corrupt="skip") is None


def test_threads_leave_the_standard_error_alone(tmp_path, capfd):
    """File descriptor 2 belongs to the process: what others write meanwhile must arrive, and afterwards too."""
    content = encode(ENCODED["jpg"])
    good, bad = tmp_path / "good.jpg", tmp_path / "bad.jpg"
    good.write_bytes(content)
    bad.write_bytes(content[: len(content) // 2])
    step = LoadImageFromFile(on_corrupt="skip")

    def work(index: int) -> None:
        loaded = step.transform({"img_path": str((good, bad)[index % 2])})
        assert (loaded is None) == (index % 2)
        os.write(2, b"%04d\n" % index)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    os.write(2, b"end\n")
    written = capfd.readouterr().err
    assert sorted(line for line in written.split() if line.isdecimal()) == [f"{i:04}" for i in range(400)]
    assert "end" in written


def test_bad_option():
    with pytest.raises(ValueError, match="ignore"):
        LoadImageFromFile(on_corrupt="ignore")
