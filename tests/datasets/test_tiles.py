"""Tiles to train on: what of the objects they contain."""

import numpy as np
import pytest
from mmdet.datasets.transforms import LoadAnnotations
from pycocotools import mask as coco

from mmlisa.datasets.tiles import RandomTile

SIZE = (300, 200)  # height, width


def entries(kind: str) -> tuple[list[dict], np.ndarray]:
    """Twenty triangles, as the data set gives them and as pixels."""
    rng, found, masks = np.random.default_rng(0), [], []
    for label in range(20):
        corner = rng.integers(0, np.array(SIZE[::-1]) - 60)
        polygon = (corner + np.array([[0, 0], [50, 10], [20, 55]])).ravel().tolist()
        encoded = coco.merge(coco.frPyObjects([polygon], *SIZE))
        x, y, width, height = coco.toBbox(encoded)
        mask = [polygon] if kind == "polygons" else {**encoded, "counts": encoded["counts"].decode()}
        found.append(dict(bbox=[x, y, x + width, y + height], bbox_label=label, ignore_flag=0, mask=mask))
        masks.append(coco.decode(encoded).astype(bool))
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
