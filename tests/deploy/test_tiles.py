"""Tiles of large images: where they lie, what they find once, and the detector around them."""

import numpy as np
import pytest
from mmseg.models.segmentors import EncoderDecoder
from pycocotools import mask as coco

from mmlisa.deploy.runtime import Prediction, Tiles, decode_mask, encode_mask

SIZES = [(640, 640), (641, 640), (100, 30), (300, 2000), (2000, 300), (1152, 1153), (1999, 1021)]


def find(tiles: Tiles, objects: list[tuple[np.ndarray, int]]) -> Prediction:
    """Predictions of a perfect detector: of each object (mask, class) what a tile shows, in an order of chance."""
    rng = np.random.default_rng(0)
    for index, (x1, y1, x2, y2) in enumerate(tiles.windows):
        seen = [(mask[y1:y2, x1:x2], label) for mask, label in objects if mask[y1:y2, x1:x2].any()]
        masks = np.array([mask for mask, _ in seen]).reshape(len(seen), y2 - y1, x2 - x1)
        boxes = np.array([box_of(mask) for mask in masks], np.float32).reshape(-1, 4)
        labels = np.array([label for _, label in seen], np.int64)
        tiles.add(index, Prediction(boxes, rng.random(len(seen), np.float32), labels, masks))
    return tiles.merge()


def box_of(mask: np.ndarray) -> list[int]:
    x, y, width, height = coco.toBbox(coco.encode(np.asfortranarray(mask, np.uint8)))
    return [x, y, x + width, y + height]


@pytest.mark.parametrize("size", SIZES)
def test_tiles_cover_every_pixel_where_slide_mode_has_them(size):
    tiles = Tiles(size, 640, 0.2)
    covered = np.zeros(size, bool)
    for x1, y1, x2, y2 in tiles.windows:
        assert (x2 - x1, y2 - y1) == (min(size[1], 640), min(size[0], 640))
        covered[y1:y2, x1:x2] = True
    assert covered.all()
    

@pytest.mark.parametrize("size", [(500, 700), (700, 500), (90, 1000), (1000, 90), (128, 128), (80, 70)])
def test_objects_are_found_once_with_whole_boxes_and_masks(size):
    rng = np.random.default_rng(sum(size))
    objects, taken = [], np.zeros(size, bool)
    for _ in range(150):
        height, width = np.minimum(rng.integers(4, [60, 60]) * rng.choice([1, 1, 1, 5]), np.array(size) - 1)
        y, x = rng.integers(np.array(size) - (height, width))
        mask = np.zeros(size, bool)
        mask[y : y + height, x : x + width] = rng.random((height, width)) < 0.9
        mask[y : y + height, x] = mask[y, x : x + width] = True
        mask[y + height - 1, x : x + width] = mask[y : y + height, x + width - 1] = True
        if not (mask & taken).any():
            taken |= mask
            objects.append((mask, int(rng.integers(3))))
    found = find(Tiles(size, 128, 0.25), objects)
    assert sorted(found.scores, reverse=True) == found.scores.tolist()
    key = lambda row: (row[1], *row[0])
    expected = sorted(((box_of(mask), label) for mask, label in objects), key=key)
    got = sorted(zip(found.boxes.tolist(), found.labels.tolist(), strict=True), key=key)
    assert got == expected
    masks = {tuple(box): decode_mask(mask) for box, mask in zip(found.boxes.tolist(), found.masks, strict=True)}
    for mask, _ in objects:
        np.testing.assert_array_equal(masks[tuple(box_of(mask))], mask)
