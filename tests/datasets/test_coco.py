"""COCO files, against mmdet's own data set; what of the objects tiles contain."""

import json

import numpy as np
import pycocotools.coco
import pytest

pytest.importorskip("mmdet")
from mmdet.datasets import CocoDataset as TheirDataset
from mmdet.datasets.transforms import LoadAnnotations
from pycocotools import mask as mask_api

from helpers.coco import coco, dataset_cfg
from mmlisa.datasets.coco import CocoDataset, RandomTile


def test_a_file_is_read_once_and_as_mmdet_reads_it(tmp_path, monkeypatch):
    content = coco(dict(iscrowd=1), dict(category_id=3, bbox=[1, 1, 30, 20]), dict(ignore=True), dict(image_id=5))
    content["categories"] = [dict(id=3, name="dog"), dict(id=5, name="other"), dict(id=7, name="cat")]
    content["images"] += [
        dict(id=5, file_name="b.png", width=40, height=30),
        dict(id=6, file_name="c.png", width=9, height=9),
    ]
    options = dataset_cfg(tmp_path, content) | dict(metainfo=dict(classes=("dog", "cat")), serialize_data=False)
    del options["type"]
    for more in (
        dict(filter_cfg=dict(filter_empty_gt=True)),
        dict(test_mode=True),
        dict(data_prefix=dict(img="a", seg="b")),
    ):
        theirs = TheirDataset(**options | more)
        with monkeypatch.context() as patch:
            patch.setattr(pycocotools.coco.json, "load", lambda *args: pytest.fail("read again"))
            ours = CocoDataset(**options | more)
        assert ours.data_list == theirs.data_list
        assert ours.cat_ids == theirs.cat_ids
    content["annotations"][0]["bbox"] = [1, 2, 3]  # the only one of this class that is not a crowd
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert len(CocoDataset(**options).data_list[0]["instances"]) == len(ours.data_list[0]["instances"]) - 1


def test_a_test_set_without_annotations_is_read(tmp_path):
    content = {key: value for key, value in coco().items() if key != "annotations"}
    options = dataset_cfg(tmp_path, content)
    del options["type"]
    (only,) = CocoDataset(**options, test_mode=True, serialize_data=False).data_list
    assert only["instances"] == []
    with pytest.raises(ValueError, match=r"a\.json: it is not a dict with images, annotations"):
        CocoDataset(**options)


SIZE = (300, 200)  # height, width


def entries(kind: str) -> tuple[list[dict], np.ndarray]:
    """Twenty triangles, as the data set gives them and as pixels."""
    rng, found, masks = np.random.default_rng(0), [], []
    for label in range(20):
        corner = rng.integers(0, np.array(SIZE[::-1]) - 60)
        polygon = (corner + np.array([[0, 0], [50, 10], [20, 55]])).ravel().tolist()
        encoded = mask_api.merge(mask_api.frPyObjects([polygon], *SIZE))
        x, y, width, height = mask_api.toBbox(encoded)
        mask = [polygon] if kind == "polygons" else {**encoded, "counts": encoded["counts"].decode()}
        found.append(dict(bbox=[x, y, x + width, y + height], bbox_label=label, ignore_flag=0, mask=mask))
        masks.append(mask_api.decode(encoded).astype(bool))
    return found, np.array(masks)


def image() -> np.ndarray:
    """The row and the column of each pixel, so that a tile shows its place."""
    rows, columns = np.indices(SIZE)
    return np.stack([rows % 256, rows // 256, columns], axis=2).astype(np.uint8)


def cut(step: RandomTile, instances: list[dict]) -> tuple[dict, int, int]:
    results = step.transform(dict(img=image(), img_shape=SIZE, ori_shape=SIZE, instances=instances))
    low, high, x = results["img"][0, 0]
    return results, int(x), int(low) + 256 * int(high)


@pytest.mark.parametrize("kind", ["polygons", "run lengths"])
@pytest.mark.parametrize("size", [64, 128, 250])
def test_boxes_and_masks_are_those_of_the_whole_image_in_the_tile(kind, size):
    instances, masks = entries(kind)
    np.random.seed(0)
    for _ in range(10):
        results, x, y = cut(RandomTile(size, min_visibility=0.3), instances)
        results = LoadAnnotations(with_mask=True).transform(results)
        inside = masks[:, y : y + size, x : x + size]
        assert results["img"].shape[:2] == inside.shape[1:] == results["ori_shape"]
        shares = inside.sum((1, 2)) / masks.sum((1, 2))
        kept = np.flatnonzero(shares >= 0.3)
        assert results["gt_bboxes_labels"].tolist() == kept.tolist()
        found = results["gt_masks"].masks
        assert (found != inside[kept]).mean() < (
            1e-3 if kind == "polygons" else 1e-9
        )  # outlines are drawn from the corner
        boxes = results["gt_masks"].get_bboxes("hbox").tensor.numpy()
        np.testing.assert_allclose(results["gt_bboxes"].tensor.numpy(), boxes, atol=1)


def test_boxes_without_masks_are_clipped():
    instances = [
        dict(bbox=[10, 10, 50, 20], bbox_label=0, ignore_flag=0),
        dict(bbox=[0, 0, 5, 5], bbox_label=1, ignore_flag=0),
    ]
    step = RandomTile(64, near_object=0, empty=1)
    step._draw = lambda size, boxes: np.array([30, 0])
    results, *_ = cut(step, instances)
    assert [entry["bbox"] for entry in results["instances"]] == [[0, 10, 20, 20]]


def test_outlines_of_two_points_are_left_to_load_annotations():
    """mmdet ignores such an object; with its outline in pixels of the whole image, it would train on a wrong mask."""
    step = RandomTile(64, near_object=0, empty=1)
    step._draw = lambda size, boxes: np.array([30, 0])
    results, *_ = cut(step, [dict(bbox=[40, 10, 50, 20], bbox_label=0, ignore_flag=0, mask=[[40, 10, 50, 20]])])
    assert LoadAnnotations(with_mask=True).transform(results)["gt_ignore_flags"].tolist() == [True]
    assert results["instances"][0]["mask"] == []


@pytest.mark.parametrize(("near_object", "empty", "share"), [(1.0, 0.0, 1.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.1)])
def test_tiles_with_and_without_objects(near_object, empty, share):
    """Of the tiles anywhere in the image, about a tenth contains enough of one small object."""
    instances = [dict(bbox=[150, 250, 170, 270], bbox_label=0, ignore_flag=0)]
    np.random.seed(0)
    step = RandomTile(64, near_object=near_object, empty=empty)
    found = [len(cut(step, instances)[0]["instances"]) for _ in range(200)]
    assert np.mean(found) == pytest.approx(share, abs=0.06 if share < 1 else 0)
    if near_object:
        results, x, y = cut(step, instances)
        assert results["instances"][0]["bbox"] == [150 - x, 250 - y, 170 - x, 270 - y]
