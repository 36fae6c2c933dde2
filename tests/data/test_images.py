"""Images are examined as the training reads them: orientation, depth, damage."""

import cv2
import numpy as np
import pytest
from mmcv.transforms import LoadImageFromFile
from PIL import Image

from mmlisa.data.images import examine_image

PICTURE = cv2.resize(np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8), (64, 48))


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_orientation(tmp_path, suffix, orientation):
    """EXIF's orientation counts where OpenCV follows it; elsewhere, annotations would not fit."""
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[0x0112] = orientation
    options = dict(tiffinfo={0x0112: orientation}) if suffix == "tif" else dict(exif=exif)
    Image.fromarray(PICTURE).save(path, **options)
    height, width = LoadImageFromFile()(dict(img_path=str(path)))["img"].shape[:2]
    if suffix == "webp" and orientation > 1:
        with pytest.raises(ValueError, match="EXIF turns it, but not in training"):
            examine_image(path)
    else:
        found = examine_image(path, (width, height))
        assert found.size == ((48, 64) if orientation == 6 else (64, 48))
        assert ["upside down" in note for note in found.notes] == [True] * (orientation == 3)
        with pytest.raises(ValueError, match=f"{width}x{height} pixels.*{height}x{width}"):
            examine_image(path, (height, width))


@pytest.mark.parametrize(
    ("name", "array", "levels"),
    [
        ("a.png", PICTURE, 0),
        ("a.png", PICTURE.astype(np.uint16) * 257, len(np.unique(PICTURE))),
        ("a.png", PICTURE.astype(np.uint16) * 16, "12 bits in 16.* 16 grey levels"),
        ("a.tif", PICTURE[..., 0].astype(np.uint16) * 16, "12 bits in 16"),
        ("a.png", np.zeros((4, 4), np.uint16), 1),
        ("a.tif", PICTURE[..., 0].astype(np.float32), "OpenCV.*cannot read it"),
    ],
)
def test_depth(tmp_path, name, array, levels):
    cv2.imwrite(str(tmp_path / name), array)
    if isinstance(levels, str):
        with pytest.raises(ValueError, match=levels):
            examine_image(tmp_path / name)
    else:
        assert examine_image(tmp_path / name).levels == levels


def test_what_the_training_does_not_see_is_noted(tmp_path):
    """Further pages of a TIFF, and a channel beside RGB that is not constant."""
    pages = [Image.fromarray(PICTURE), Image.fromarray(PICTURE[::-1])]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert "several pages" in examine_image(tmp_path / "a.tif").notes[0]
    for alpha, noted in ((PICTURE[..., :1], True), (np.full_like(PICTURE[..., :1], 255), False)):
        cv2.imwrite(str(tmp_path / "b.png"), np.dstack([PICTURE, alpha]))
        assert any("fourth channel" in note for note in examine_image(tmp_path / "b.png").notes) == noted


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_files_that_are_cut_off_or_something_else(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(PICTURE).save(path)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match="damaged"):
        examine_image(path)
    path.write_text("<html>")
    with pytest.raises(ValueError, match="cannot read it"):
        examine_image(path)
