"""Copies of images, and frames of one video."""

from io import BytesIO

import cv2
import numpy as np
import pytest
from PIL import Image

from mmlisa.data.dataset import Sample
from mmlisa.data.likeness import find_copies, find_cut_videos, make_thumbnail


def picture(seed, size=(320, 240)):
    return cv2.resize(np.random.default_rng(seed).integers(0, 255, (12, 16, 3), dtype=np.uint8), size)


def sample(image, number=0, split="train", path="images/{split}/{number}.jpg"):
    name = path.format(split=split, number=number)
    return Sample(name, split, digest=bytes([number]), thumbnail=make_thumbnail(image))


@pytest.mark.parametrize(("size", "quality"), [((320, 240), 40), ((160, 120), 90)])
def test_a_picture_saved_again_is_a_copy(size, quality):
    file = BytesIO()
    Image.fromarray(cv2.resize(picture(0), size, interpolation=cv2.INTER_AREA)).save(file, "JPEG", quality=quality)
    others = [sample(picture(seed), seed) for seed in range(3)]
    again = sample(np.asarray(Image.open(file)), 9)
    assert find_copies([sample(picture(7), 7), again, sample(picture(8), 2)], others) == [1, 2]


def test_images_of_one_colour_are_not_copies_unless_the_files_are_equal():
    white = np.full((20, 20, 3), 255, np.uint8)
    assert find_copies([sample(white, 1), sample(white, 2)], [sample(white, 2)]) == [1]


def row(step, count=24, path="images/{split}/{number}.jpg"):
    """Windows of a wide picture, a step apart; every fourth one validates."""
    wide = picture(0, (3000, 240))
    splits = ["val" if number % 4 == 0 else "train" for number in range(count)]
    corners = [(number * step) % 2600 for number in range(count)]
    return [
        sample(wide[:, corner : corner + 320], number, split, path)
        for number, (corner, split) in enumerate(zip(corners, splits, strict=True))
    ]


@pytest.mark.parametrize(
    ("frames", "cuts"),
    [
        (row(20), 11),
        (row(20, path="{number}_jpg.rf.0123abc.jpg"), 11),
        (row(777), 0),  # numbered photos
        (row(20, count=8), 0),
        (row(20, path="{split}_x.jpg"), 0),
    ],
)
def test_neighbouring_frames_in_two_splits(frames, cuts):
    assert len(find_cut_videos(frames)) == cuts
