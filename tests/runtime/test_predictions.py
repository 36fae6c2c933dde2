"""Masks: resizing, and run lengths. Tiles of large images: where they lie, and what they find once."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmseg.models.segmentors import EncoderDecoder
from pycocotools import mask as coco
from torch import nn

from mmlisa.runtime import Prediction, Tiles, decode_mask, encode_mask
from mmlisa.runtime.predictions import best_class

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
def test_tiles_lie_where_mmsegs_slide_mode_has_them(size):
    """It asserts itself that they cover every pixel."""
    corners = []
    segmentor = SimpleNamespace(
        test_cfg=SimpleNamespace(stride=(512, 512), crop_size=(640, 640)),
        out_channels=1,
        encode_decode=lambda crop, _: corners.append(crop[0, :, [0, -1], [0, -1]].T.ravel().tolist()) or crop[:, :1],
    )
    image = torch.stack(torch.meshgrid(*map(torch.arange, size[::-1]), indexing="xy"))[
        None
    ].float()  # x, y of each pixel
    EncoderDecoder.slide_inference(segmentor, image, [{}])
    assert Tiles(size, 640, 0.2).windows.tolist() == [[x1, y1, x2 + 1, y2 + 1] for x1, y1, x2, y2 in corners]


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
    expected = [(label, *box_of(mask)) for mask, label in objects]
    assert sorted(
        (label, *box) for box, label in zip(found.boxes.tolist(), found.labels.tolist(), strict=True)
    ) == sorted(expected)
    masks = {tuple(box): decode_mask(mask) for box, mask in zip(found.boxes.tolist(), found.masks, strict=True)}
    for mask, _ in objects:
        np.testing.assert_array_equal(masks[tuple(box_of(mask))], mask)


def test_which_detections_of_a_tile_count():
    """Tiles [0, 100) and [80, 180): the middle of the overlap is at 90, and a quarter of it is 5."""
    tiles = Tiles((100, 180), 100, 0.2)
    boxes = np.float32([[84, 10, 100, 20], [92, 30, 100, 40], [84, 50, 100, 60]])  # centres at 92, 96 and 92
    tiles.add(0, Prediction(boxes, np.float32([0.9, 0.8, 0.7]), np.int64([0, 0, 0])))
    tiles.add(1, Prediction(boxes[2:] - np.float32([80, 0, 80, 0]), np.float32([0.6]), np.int64([1])))
    found = tiles.merge()
    assert found.boxes.tolist() == [*boxes[[0, 2, 2]].tolist()]
    assert found.labels.tolist() == [0, 0, 1], "objects of two classes in one place"


@pytest.mark.parametrize(("tile", "overlap", "name"), [(63, 0.2, "tile"), (64, 1.0, "overlap"), (64, -0.1, "overlap")])
def test_tiles_that_make_no_sense_are_refused(tile, overlap, name):
    with pytest.raises(ValueError, match=f"^{name}="):
        Tiles((100, 100), tile, overlap)


@pytest.mark.parametrize("aligned", [False, True])
def test_maps_are_resized_as_in_mmsegmentation(aligned):
    torch.manual_seed(0)
    maps = torch.randn(1, 4, 9, 13)
    resized = nn.functional.interpolate(maps, (31, 50), mode="bilinear", align_corners=aligned)
    found = best_class(maps[0].numpy(), (31, 50), aligned)
    assert (found == resized[0].argmax(0).numpy()).mean() > 0.97  # OpenCV rounds the weights of aligned corners


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_run_lengths_are_cocos(share):
    rng = np.random.default_rng(0)
    for height, width in rng.integers(1, 80, (30, 2)):
        mask = rng.random((height, width)) < share
        expected = coco.encode(np.asfortranarray(mask, np.uint8))
        assert encode_mask([(0, 0, mask)], mask.shape)["counts"] == expected["counts"].decode()
        np.testing.assert_array_equal(decode_mask(expected), mask)
    whole = np.zeros((500, 400), bool)
    whole[100:180, 200:280] = part = rng.random((80, 80)) < 0.5
    expected = coco.encode(np.asfortranarray(whole, np.uint8))["counts"].decode()
    assert encode_mask([(200, 100, part)], whole.shape)["counts"] == expected


def test_a_prediction_shows_its_shapes():
    whole = Prediction(boxes=np.zeros((2, 4)), masks=[{}, {}])
    assert repr(whole) == "Prediction(boxes [2, 4], masks [2])"
    assert repr(Prediction(probabilities=np.zeros(3))) == "Prediction(probabilities [3])"
