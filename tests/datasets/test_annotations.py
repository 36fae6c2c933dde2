"""Bad annotations are named by their ids, skipped or refused."""

import json
import math
import re

import cv2
import numpy as np
import pytest

from mmlisa.datasets.annotations import find_problems, without

SQUARE = [[2, 2, 12, 2, 12, 12, 2, 12]]


def coco(*annotations, **image):
    """A file of one good annotation, number 1, and more."""
    entry = dict(image_id=1, category_id=7, bbox=[2, 2, 10, 10], area=100, segmentation=SQUARE, iscrowd=0)
    return dict(
        images=[dict(id=1, file_name="a.png", width=40, height=30) | image],
        categories=[dict(id=7, name="cat")],
        annotations=[entry | dict(id=i + 1) | changes for i, changes in enumerate([{}, *annotations])],
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(bbox=[1, 2, 3]), "four finite numbers"),
        (dict(bbox=[1, 2, math.nan, 3]), "four finite numbers"),
        (dict(bbox=[1, 2, "3", 4]), "four finite numbers"),
        (dict(bbox=None), "four finite numbers"),
        (dict(bbox=[5, 5, -3, 4]), "smaller than a pixel"),
        (dict(bbox=[50, 5, 3, 4]), "outside of the image"),
        (dict(area=math.nan), "area is nan"),
        (dict(segmentation=None), "no segmentation"),
        (dict(segmentation=[]), "segmentation is empty"),
        (dict(segmentation=[[1, 2, 3, 4]]), "three or more points"),
        (dict(segmentation=[[1, 2, 3, 4, math.inf, 6]]), "three or more points"),
        (dict(segmentation=[[5, 5, 1e9, 5, 5, 9]]), "far out of the image"),
        (dict(segmentation=[[5, 5, 9, -31, 5, 9]]), "far out of the image"),
        (dict(segmentation=dict(size=None, counts=[1200])), "size None"),
        (dict(id=[2]), "neither a number nor text"),
        (dict(image_id={}), "no image has image_id {}"),
        (dict(category_id=[7]), r"no category has category_id \[7\]"),
        (dict(segmentation=[[5, 5, 5, 5, 5, 5]]), "no pixel"),
        (dict(segmentation=[[50, 5, 60, 5, 60, 15]]), "no pixel"),
        (dict(segmentation=dict(size=[40, 30], counts=[1200])), r"size \[40, 30\], the image of \[30, 40\]"),
        (dict(segmentation=dict(size=[30, 40], counts=[10, 5])), "do not add up to 1200"),
        (dict(segmentation=dict(size=[30, 40], counts=[1200])), "no pixel"),
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
    ],
)
def test_a_bad_image_is_named_and_takes_its_annotations_along(change, reason):
    content = coco(**change)
    (problem,) = find_problems(content)
    assert reason in str(problem)
    assert without(content, [problem])["annotations"] == []


def test_good_ones_pass():
    runs = dict(size=[30, 40], counts=[10, 5, 1185])
    assert (
        find_problems(coco(dict(segmentation=runs, iscrowd=1), dict(segmentation=[[5, 5, 6.4, 5, 6.4, 6.4, 5, 6.4]])))
        == []
    )
    assert find_problems(coco(dict(segmentation=None)), with_mask=False) == []
    with pytest.raises(ValueError, match="lists images, annotations, categories"):
        find_problems({"images": []})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.png"), np.zeros((30, 40, 3), np.uint8))
    return tmp_path


def dataset_cfg(folder, content, **options):
    (folder / "a.json").write_text(json.dumps(content))
    return dict(
        type="mmlisa.CocoDataset", data_root=str(folder), ann_file="a.json", data_prefix=dict(img="images"),
        metainfo=dict(classes=("cat",)), pipeline=[dict(type="mmdet.LoadAnnotations", with_bbox=True, with_mask=True)], **options,
    )  # fmt: skip


def test_the_dataset_skips_or_refuses(folder):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    bad = coco(dict(bbox=[1, 2, 3]), dict(id=1))
    dataset = DATASETS.build(dataset_cfg(folder, bad))
    assert [len(info["instances"]) for info in map(dataset.get_data_info, range(len(dataset)))] == [1]
    assert [problem.id for problem in dataset.problems] == [2, 1]
    with pytest.raises(ValueError, match=r"a\.json has 2 bad annotations: annotation 2: bbox is \[1, 2, 3\]"):
        DATASETS.build(dataset_cfg(folder, bad, on_bad_annotation="error"))
    with pytest.raises(ValueError, match="Nothing is left"):
        DATASETS.build(dataset_cfg(folder, coco(file_name="../a.png")))
    with pytest.raises(ValueError, match="on_bad_annotation is 'ignore'"):
        DATASETS.build(dataset_cfg(folder, bad, on_bad_annotation="ignore"))


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (
            {},
            dict(metainfo=dict(classes="cat")),
            r"classes='cat', which is no file of names; write names in a tuple, \('cat',\)",
        ),
        ({}, dict(metainfo=dict(classes=("cart",))), r"close ones: \{'cart': \['cat'\]\}"),
        (dict(categories=[]), {}, "has no categories"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # MMEngine looks for a file of that name
def test_classes_that_do_not_fit_the_file_are_named(folder, change, options, reason):
    pytest.importorskip("mmdet")
    from mmlisa.registry import DATASETS

    with pytest.raises(ValueError, match=reason):
        DATASETS.build({**dataset_cfg(folder, coco() | change), **options})


def test_everything_wrong_is_listed(folder):
    pytest.importorskip("mmdet")
    from mmengine.config import Config

    from mmlisa.datasets.checking import find_all

    content = coco(dict(area=-1), height=31)
    content["images"].insert(0, dict(id=2, file_name="none.png", width=5, height=5))
    cfg = Config(dict(default_scope="mmdet", train_dataloader=dict(dataset=dataset_cfg(folder, content))))
    lines = list(find_all(cfg, "train"))
    assert [line.removeprefix(str(folder)) for line in lines] == [
        "/a.json: annotation 2: area is -1 (a.png)",
        "/images/none.png: there is no such image",
        "/images/a.png: the image is 40 x 30 pixels, its annotation says 40 x 31",
    ]
