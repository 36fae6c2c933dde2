"""Annotations that a training cannot use are named by their ids, and so are classes that do not fit."""

import math
import re

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from helpers.coco import coco, dataset_cfg
from mmlisa.datasets.annotations import find_bad_annotations, find_misplaced, find_repeated, find_shrunk
from mmlisa.registry import DATASETS

pytest.importorskip("mmdet")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.png"), np.zeros((30, 40, 3), np.uint8))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(bbox=[1, 2, 3]), "finite"),
        (dict(bbox=[1, 2, math.nan, 3]), "finite"),
        (dict(bbox=[5, 5, -3, 4]), "smaller than a pixel"),
        (dict(bbox=[40, 5, 3, 4]), "outside"),
        (dict(bbox=[-10, 5, 5, 4]), "outside"),
        (dict(area=0), "area is 0"),
        (dict(image_id=9), "image_id 9"),
        (dict(category_id=8), "category_id 8"),
        (dict(segmentation=[]), "no segmentation"),
        (dict(segmentation=[[1, 2, 3, 4]]), "polygon"),
        (dict(segmentation=[[1, 2, 3, 4, math.inf, 6]]), "polygon"),
        (dict(segmentation=[1, 2, 3, 4, 5, 6]), "polygon"),
        (dict(segmentation=dict(size=[40, 30], counts=[0, 1200])), "sides exchanged"),
        (dict(segmentation=dict(size=[15, 20], counts=[0, 300])), "[15, 20]"),
        (dict(segmentation=dict(size=[30, 40], counts=[0, 300])), "300 pixels, its image has 1200"),
        (dict(segmentation=dict(size=[30, 40], counts=[1200])), "no pixel"),
        (
            dict(segmentation=dict(size=[30, 40], counts=coco_mask.encode(np.ones((3, 4), np.uint8, "F"))["counts"])),
            "12 pixels",
        ),
    ],
)
def test_bad_annotations(change, reason):
    bad = find_bad_annotations(coco(change))
    assert [*bad] == [2]
    assert reason in bad[2]
    assert bool(find_bad_annotations(coco(change), with_mask=False)) == ("segmentation" not in change)


@pytest.mark.parametrize(
    "content",
    [
        [],
        dict(images=[], annotations=[]),
        coco(dict(segmentation=5)),
        coco(dict(id=1)),
        coco(width=None),
        coco(width=0),
        coco() | dict(categories=[dict(id=7, name="cat"), dict(id=7, name="dog")]),
        coco() | dict(categories=[dict(id=7)]),
    ],
)
def test_files_that_are_not_coco(content):
    with pytest.raises(ValueError, match=r"it is not|unexpected form|not a size|used twice"):
        find_bad_annotations(content)


def test_doubts():
    def doubts(*changes):
        entries = coco(*changes)["annotations"]
        return find_misplaced(entries, [(40, 30)] * len(entries))

    assert doubts() == []
    outside, apart = doubts(dict(bbox=[25, 3, 38, 20]))
    assert "1 of 2 boxes" in outside
    assert "1 of 2 masks lie elsewhere" in apart
    run_lengths = coco_mask.encode(np.asfortranarray(np.pad(np.ones((20, 20), np.uint8), ((8, 2), (18, 2)))))
    assert "1 of 2 masks" in doubts(dict(segmentation=run_lengths))[0]


def entries(boxes):
    return [dict(bbox=[float(number) for number in box], category_id=1) for box in boxes]


def test_centres_of_small_objects():
    """As left and top they leave the image at the right and below only."""
    centres = np.random.default_rng(0).uniform(6, (394, 294), (300, 2))
    boxes = np.hstack([centres, np.full((300, 2), 12)])
    (doubt,) = find_misplaced(entries(boxes), [(400, 300)] * 300)
    assert re.search(r"\b1\d of 300 boxes.*centre x", doubt)
    boxes[:, :2] -= 6
    assert find_misplaced(entries(boxes), [(400, 300)] * 300) == []


def test_objects_that_are_annotated_twice():
    """The two may differ a little; objects of two classes or in two images are not twins."""
    boxes = entries([4 + 20 * number, 5, 15, 15] for number in range(10))
    shifted = entries([4.3 + 20 * number, 5, 15, 15] for number in range(10))
    assert find_repeated(boxes, "a" * 10) == []
    assert "10 of 20 objects are annotated twice" in find_repeated(boxes + shifted, "a" * 20)[0]
    assert find_repeated(boxes + shifted, "a" * 10 + "b" * 10) == []
    for entry in shifted:
        entry["category_id"] = 2
    assert find_repeated(boxes + shifted, "a" * 20) == []


@pytest.mark.parametrize(("scale", "found"), [(0.5, 1), (1, 0), (0.3, 0)])
def test_objects_of_one_quarter_of_the_images(scale, found):
    corners = np.random.default_rng(0).uniform(0, 90, (200, 2))
    boxes = np.hstack([corners, np.full((200, 2), 10)]) * scale
    assert len(find_shrunk(entries(boxes), [(100, 100)] * 200)) == found


def test_what_mmdets_metric_does_not_take_is_named(folder):
    content = coco()
    content["annotations"][0]["id"] = 0
    del content["annotations"][0]["iscrowd"]
    assert re.search("id 0.*iscrowd", " ".join(DATASETS.build(dataset_cfg(folder, content)).problems))


def test_a_file_without_masks_says_how_to_train_on_boxes(folder):
    (entry,) = coco()["annotations"]
    with pytest.raises(ValueError, match=r"a\.json.*with_mask=False.*mask_head=None"):
        DATASETS.build(dataset_cfg(folder, coco() | dict(annotations=[entry | dict(segmentation=[])])))


@pytest.mark.parametrize(
    ("names", "classes", "message"),
    [
        (["cat"], ("cart",), r"\['cart'\].*\['cat'\]"),
        (["cat", "dog"], ("dog", "cat"), "in the same order"),
        (["cat", "cat"], ("cat",), "one category"),
    ],
)
def test_classes_that_do_not_fit_the_file_are_named(folder, names, classes, message):
    content = coco() | dict(categories=[dict(id=7 + index, name=name) for index, name in enumerate(names)])
    with pytest.raises(ValueError, match=message):
        DATASETS.build({**dataset_cfg(folder, content), "metainfo": dict(classes=classes)})
