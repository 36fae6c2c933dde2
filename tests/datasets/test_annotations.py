"""Bad annotations are named by their ids, skipped or refused."""

import copy
import math
import re

import numpy as np
import pytest
from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from helpers.coco import SQUARE, coco, dataset_cfg
from mmlisa.datasets.annotations import find_problems, read_runs, share_outside, without

_MASK = np.zeros((30, 40), np.uint8, order="F")
_MASK[3:9, 4:30] = _MASK[20:25, 30:38] = 1
RLE = masks.encode(_MASK)["counts"].decode()  # 1200 pixels in 69 runs


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(bbox=[1, 2, 3]), "four finite numbers"),
        (dict(bbox=[1, 2, math.nan, 3]), "four finite numbers"),
        (dict(bbox=[1, 2, "3", 4]), "four finite numbers"),
        (dict(bbox=None), "four finite numbers"),
        (dict(bbox=[5, 5, -3, 4]), "smaller than a pixel"),
        (dict(bbox=[50, 5, 3, 4]), "outside the image"),
        (dict(bbox=[40, 5, 3, 4]), "outside the image"),
        (dict(bbox=[-10, 5, 5, 4]), "outside the image"),
        (dict(area=math.nan), "area is nan"),
        (dict(segmentation=None), "no segmentation"),
        (dict(segmentation=[]), "segmentation is empty"),
        (dict(segmentation=[[1, 2, 3, 4]]), "three or more finite points"),
        (dict(segmentation=[[1, 2, 3, 4, math.inf, 6]]), "three or more finite points"),
        (dict(segmentation=[[5, 5, 1e9, 5, 5, 9]]), "far outside the image"),
        (dict(segmentation=[[5, 5, 9, -31, 5, 9]]), "far outside the image"),
        (dict(segmentation=dict(size=None, counts=[1200])), "size of its RLE is None"),
        (dict(id=[2]), "neither an integer nor a string"),
        (dict(image_id={}), "no image has image_id {}"),
        (dict(category_id=[7]), r"no category has category_id \[7\]"),
        (dict(segmentation=[[5, 5, 5, 5, 5, 5]]), "no pixel"),
        (dict(segmentation=[[50, 5, 60, 5, 60, 15]]), "no pixel"),
        (
            dict(segmentation=dict(size=[40, 30], counts=[1200])),
            r"size of its RLE is \[40, 30\], but the image is \[30, 40\]",
        ),
        (dict(segmentation=dict(size=[30, 40], counts=[10, 5])), "add up to 15, but the image has 1200 pixels"),
        (dict(segmentation=dict(size=[30, 40], counts=[1200])), "no pixel"),
        (dict(segmentation=dict(size=[30, 40], counts=[10.5, 5, 1184.5])), "whole numbers"),
        (dict(segmentation=dict(size=[30, 40], counts=[1300, -200, 100])), "whole numbers"),
        (dict(segmentation=dict(size=[30, 40], counts="")), "add up to 0"),
        (dict(segmentation=dict(size=[30, 40], counts=RLE[:-2])), "add up to"),
        (dict(segmentation=dict(size=[30, 40], counts=RLE + "1")), "add up to 1206"),
        (dict(segmentation=dict(size=[30, 40], counts=RLE[:-1] + "P")), "not a valid RLE string"),
        (dict(segmentation=dict(size=[30, 40], counts="\u00e9")), "not a valid RLE string"),
        (dict(segmentation=dict(size=[30, 40], counts="P" * 200 + "0")), "not a valid RLE string"),
        (dict(segmentation=dict(size=[30, 40], counts="`U1")), "no pixel"),
        (dict(area=10**400), "area is 1000"),
        (dict(bbox=[1, 2, 10**400, 3]), "four finite numbers"),
        (dict(iscrowd="yes"), "iscrowd is 'yes'; it must be 0 or 1"),
        (dict(iscrowd=2), "iscrowd is 2"),
        (dict(id=1), "used twice"),
        (dict(category_id=8), "no category has category_id 8"),
        (dict(image_id=2), "no image has image_id 2"),
    ],
)
def test_a_bad_annotation_is_named(change, reason):
    content = coco(change)
    (problem,) = find_problems(content)
    assert (problem.part, problem.index, problem.id) == ("annotations", 1, change.get("id", 2))
    assert re.search(reason, str(problem))
    assert len(str(problem)) < 300
    assert [entry["id"] for entry in without(content, [problem])["annotations"]] == [1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(file_name="/etc/passwd"), "absolute"),
        (dict(file_name="C:\\a.png"), "absolute"),
        (dict(file_name="../a.png"), "leaves the image folder"),
        (dict(file_name="b\\..\\..\\a.png"), "leaves the image folder"),
        (dict(file_name=None), "file_name is None"),
        (dict(width=-4), "size -4 x 30"),
        (dict(height=math.nan), "size 40 x nan"),
        (dict(width=10**6), "size 1000000 x 30"),
        (dict(height=48.5), "size 40 x 48.5"),
        (dict(height=10**400), "size 40 x 1000"),
        (dict(file_name="a\0.png"), "file_name 'a\\x00.png' contains characters that no file name can have"),
        (dict(file_name="a\ud800.png"), "contains characters that no file name can have"),
    ],
)
def test_a_bad_image_is_named_and_takes_its_annotations_along(change, reason):
    content = coco(**change)
    (problem,) = find_problems(content)
    assert reason in str(problem)
    assert len(str(problem)) < 300
    assert without(content, [problem])["annotations"] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(categories=[dict(id=7, name="cat"), dict(id=7, name="dog")]), "category id 7 is used twice"),
        (dict(categories=[dict(id=7, name="c\ud800t")]), "name 'c\\ud800t'"),
        (dict(categories=[dict(id=7)]), "no id or no name"),
        (dict(images=[dict(file_name="a.png")]), "not a dict with an id"),
    ],
)
def test_a_file_that_is_bad_as_a_whole_is_refused(change, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        find_problems(coco() | change)


def test_runs_are_those_of_pycocotools():
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (3, 5), (211, 190), (17, 4000)):
        for fill in (0.0, 0.02, 0.5, 1.0):
            mask = (rng.random(shape) < fill).astype(np.uint8)
            mask[: shape[0] // 2, : shape[1] // 3] ^= 1  # long runs as well
            runs = read_runs(masks.encode(np.asfortranarray(mask))["counts"])
            assert sum(runs) == mask.size
            decoded = np.repeat(np.arange(len(runs)) % 2, runs).reshape(shape, order="F")
            np.testing.assert_array_equal(decoded, mask)


@pytest.mark.parametrize(("xyxy", "share"), [(False, 0), (True, 0.75)])
def test_boxes_given_by_two_corners_are_suspected(xyxy, share):
    corners = [(2, 2, 12, 12), (25, 3, 38, 20), (20, 18, 39, 29), (15, 16, 22, 28)]
    content = coco(*({} for _ in corners[1:]))
    for entry, (x1, y1, x2, y2) in zip(content["annotations"], corners, strict=True):
        entry["bbox"] = [x1, y1, x2, y2] if xyxy else [x1, y1, x2 - x1, y2 - y1]
    assert share_outside(content) == share


def test_boxes_below_a_wide_image_and_beside_a_tall_one_are_suspected():
    assert share_outside(coco(dict(bbox=[5, 20, 10, 15]))) == 0.5
    assert share_outside(coco(dict(bbox=[20, 5, 15, 10]), width=30, height=40)) == 0.5


def test_boxes_rounded_to_a_pixel_beyond_the_image_are_not_suspected():
    assert share_outside(coco(dict(bbox=[20, 10, 21, 21]), dict(bbox=[1, 2, 3]), dict(image_id=9))) == 0


def test_a_polygon_below_a_wide_image_is_named():
    """Each axis is compared with its own side."""
    wide = dict(width=5000, height=40)
    below = [[5, 45, 9, 45, 9, 60]]  # within 5000 pixels, but below 40
    far = [[5, 5, 9, 5, 9, 300]]
    inside = [[4000, 5, 4100, 5, 4100, 30]]
    found = find_problems(coco(dict(segmentation=below), dict(segmentation=far), dict(segmentation=inside), **wide))
    assert [(problem.id, problem.reason) for problem in found] == [
        (2, "its mask covers no pixel of the image"),
        (3, "a polygon of its segmentation reaches far outside the image"),
    ]


def test_good_ones_pass():
    runs = dict(size=[30, 40], counts=[10, 5, 1185])
    assert (
        find_problems(coco(dict(segmentation=runs, iscrowd=1), dict(segmentation=[[5, 5, 6.4, 5, 6.4, 6.4, 5, 6.4]])))
        == []
    )
    assert find_problems(coco(dict(segmentation=None)), with_mask=False) == []
    with pytest.raises(ValueError, match="lists images, annotations, categories"):
        find_problems({"images": []})


def test_the_dataset_skips_or_refuses(folder):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    bad = coco(dict(bbox=[1, 2, 3]), dict(id=1))
    dataset = DATASETS.build(dataset_cfg(folder, bad))
    assert [len(info["instances"]) for info in map(dataset.get_data_info, range(len(dataset)))] == [1]
    assert [problem.id for problem in dataset.problems] == [2, 1]
    with pytest.raises(ValueError, match=r"a\.json has 2 bad annotations: annotation 2: bbox is \[1, 2, 3\]"):
        DATASETS.build(dataset_cfg(folder, bad, on_bad_annotation="error"))
    with pytest.raises(ValueError, match="No usable entry is left"):
        DATASETS.build(dataset_cfg(folder, coco(file_name="../a.png")))
    with pytest.raises(ValueError, match="on_bad_annotation='ignore'; it must be 'skip' or 'error'"):
        DATASETS.build(dataset_cfg(folder, bad, on_bad_annotation="ignore"))


def short_of_pixels():
    """An RLE whose runs cover 1000 of 1200 pixels; pycocotools takes it and leaves the rest of the mask uninitialised."""
    return dict(segmentation=dict(size=[30, 40], counts=masks.encode(_MASK[:, :])["counts"].decode()[:-2]))


def test_masks_that_do_not_fill_the_image_are_never_decoded(folder, monkeypatch):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    messages = []
    monkeypatch.setattr("mmlisa.datasets.coco.print_log", lambda text, **_: messages.append(text))
    cfg = dataset_cfg(folder, coco(short_of_pixels()))
    dataset = DATASETS.build(cfg)
    assert [len(info["instances"]) for info in map(dataset.get_data_info, range(len(dataset)))] == [1]
    (message,) = messages
    assert re.search(r"a\.json has 1 bad annotations: annotation 2: the runs of its RLE add up to.*check-data", message)
    with pytest.raises(ValueError, match=r"a\.json.*annotation 2.*evaluation cannot read them: correct or remove"):
        DATASETS.build(cfg | dict(test_mode=True))
    boxes = dict(type="mmdet.LoadAnnotations", with_bbox=True)
    DATASETS.build(cfg | dict(test_mode=True, pipeline=[boxes]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda entry: entry.pop("iscrowd"),
            r'1 annotations have no iscrowd, the first has id 2.*add "iscrowd": 0 to each',
        ),
        (lambda entry: entry.pop("area"), "annotation 2: area is None.*correct or remove these"),
        (
            lambda entry: entry.update(segmentation=[]),
            "annotation 2: its segmentation is empty.*correct or remove these",
        ),
        (lambda entry: entry.pop("segmentation"), "annotation 2: it has no segmentation.*correct or remove these"),
    ],
)
def test_what_the_evaluator_fails_at_is_named_before(folder, change, message):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    content = coco({})
    change(content["annotations"][1])
    cfg = dataset_cfg(folder, content)
    with pytest.raises(ValueError, match=message):
        DATASETS.build(cfg | dict(test_mode=True))
    DATASETS.build(cfg)
    detections = [dict(image_id=1, category_id=7, bbox=[2, 2, 10, 10], score=0.9, segmentation=SQUARE)]
    with pytest.raises((KeyError, IndexError)):
        evaluate(content, detections)


def test_the_annotation_that_is_never_found_is_named(folder, monkeypatch):
    """pycocotools marks a detection without an object by 0, and one with an object by its id."""
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    detections = [dict(image_id=1, category_id=7, bbox=[2, 2, 10, 10], score=0.9, segmentation=SQUARE)]
    messages = []
    monkeypatch.setattr("mmlisa.datasets.coco.print_log", lambda text, **_: messages.append(text))
    for number, precision in ((1, 1.0), (0, 0.0)):
        content = coco()
        content["annotations"][0]["id"] = number
        assert evaluate(content, detections) == pytest.approx(precision)
        DATASETS.build(dataset_cfg(folder, content, test_mode=True))
        assert len(messages) == (number == 0)
    assert "counts the annotation with id 0 as never found; number annotations from 1" in messages[0]


def evaluate(content, detections):
    """The AP50 of pycocotools, which mmdet uses."""
    truth = COCO()
    truth.dataset = copy.deepcopy(content)
    truth.createIndex()
    for one in detections:
        one["segmentation"] = masks.frPyObjects(SQUARE, 30, 40)[0]
    result = COCOeval(truth, truth.loadRes(copy.deepcopy(detections)), "segm")
    result.evaluate()
    result.accumulate()
    result.summarize()
    return result.stats[1]


@pytest.mark.parametrize("segmentation", [None, []])  # the converter of supervision writes an empty list
def test_boxes_without_outlines_name_both_switches(folder, segmentation):
    """What the converter of Pascal VOC writes, under a config with masks."""
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    content = coco()
    content["annotations"][0]["segmentation"] = segmentation
    with pytest.raises(ValueError, match=r"without outlines.*with_mask=False.*mask_head=None"):
        DATASETS.build(dataset_cfg(folder, content))


def test_boxes_by_two_corners_are_asked_about(folder, monkeypatch):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    messages = []
    monkeypatch.setattr("mmlisa.datasets.coco.print_log", lambda text, **_: messages.append(text))
    assert DATASETS.build(dataset_cfg(folder, coco())).suspicion == ""
    assert not messages
    dataset = DATASETS.build(dataset_cfg(folder, coco(dict(bbox=[25, 3, 38, 20]))))
    assert re.search(r"50% of the boxes.*\(x1, y1, x2, y2\)\?", dataset.suspicion)
    assert dataset.suspicion in messages[0]


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (
            {},
            dict(metainfo=dict(classes="cat")),
            r"classes='cat', which is not a file of names; write names in a tuple, \('cat',\)",
        ),
        ({}, dict(metainfo=dict(classes=("cart",))), r"close ones: \{'cart': \['cat'\]\}"),
        (dict(categories=[]), {}, "has no categories"),
        (
            dict(categories=[dict(id=7, name="cat"), dict(id=3, name="dog")]),
            dict(metainfo=dict(classes=("dog", "cat"))),
            r"has its categories as \['cat', 'dog'\], and the data set its classes as \['dog', 'cat'\]",
        ),
        (dict(categories=[dict(id=7, name="cat"), dict(id=8, name="cat")]), {}, "each class needs one category"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # MMEngine looks for a file of that name
def test_classes_that_do_not_fit_the_file_are_named(folder, change, options, reason):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    with pytest.raises(ValueError, match=reason):
        DATASETS.build({**dataset_cfg(folder, coco() | change), **options})
