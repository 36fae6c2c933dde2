"""The offline demo data: deterministic, made once, and its masks exactly what was pasted."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.mask import iou

from mmlisa.datasets import demo
from mmlisa.datasets.demo import CLASSES
from mmlisa.registry import DATASETS

SMALL = {"train": 6, "val": 4}
INSTANCES = dict(ann_file="annotations/instances_train.json", data_prefix=dict(img="train/"))
ADE = dict(img_path="ade/images/validation", seg_map_path="ade/annotations/validation")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return demo.make_demo(tmp_path_factory.mktemp("data") / "demo", num_images=SMALL)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("split", SMALL)
def test_coco_layout(root, split):
    coco = COCO(root / "annotations" / f"instances_{split}.json")
    assert len(coco.imgs) == SMALL[split]
    assert tuple(category["name"] for category in coco.dataset["categories"]) == CLASSES
    for image in coco.imgs.values():
        picture = cv2.imread(str(root / split / image["file_name"]))
        assert picture.shape[:2] == (image["height"], image["width"])
        assert 120 <= min(picture.shape[:2]) <= max(picture.shape[:2]) <= 210
    counts = [len(coco.getAnnIds(image_id)) for image_id in sorted(coco.imgs)]
    assert counts.count(0) == 1
    assert [a["image_id"] for a in coco.anns.values() if a["iscrowd"]] == [1]
    (tiny,) = coco.imgToAnns[3]
    assert 0 < tiny["area"] < 64
    for annotation in coco.anns.values():
        mask = coco.annToMask(annotation)
        assert mask.sum() == annotation["area"]
        assert list(cv2.boundingRect(mask)) == annotation["bbox"]


def test_written_masks_are_the_visible_parts_of_what_was_composed(root):
    coco = COCO(root / "annotations" / "instances_train.json")
    for image_id, scene in enumerate(demo.make_scenes("train", SMALL["train"]), 1):
        covered = np.zeros(scene.owner.shape, int)
        for annotation, (label, mask, _) in zip(coco.imgToAnns[image_id], scene.instances(), strict=True):
            np.testing.assert_array_equal(coco.annToMask(annotation), mask)
            assert (scene.class_map[mask] == label + 1).all()
            covered += mask
        np.testing.assert_array_equal(covered, scene.class_map > 0)  # disjoint, and nothing is left unannotated
        stored = cv2.imread(str(root / "train" / f"{image_id:012d}.jpg"))[..., ::-1]
        assert np.abs(stored.astype(int) - scene.image).mean() < 6  # JPEG


def test_large_scenes_hold_many_small_objects():
    scene = demo.make_large_scene("val", 0, seed=0, side=800, objects=60)
    boxes = np.array([cv2.boundingRect(mask.astype(np.uint8)) for _, mask, _ in scene.instances()], float)
    assert scene.image.shape == (800, 800, 3)
    assert len(boxes) == 60
    assert 15 < boxes[:, 2:].max(1).min() < boxes[:, 2:].max() < 75  # before the rotation, 20 to 60
    assert (iou(boxes, boxes, [0] * 60) - np.eye(60)).max() < 0.1


def test_same_seed_same_bytes(root, tmp_path):
    again = demo.make_demo(tmp_path / "again", num_images=SMALL)
    assert _files(again) == _files(root)
    fewer = next(demo.make_scenes("val", 1)).image
    np.testing.assert_array_equal(fewer, next(demo.make_scenes("val", 5)).image)
    assert fewer.shape != (other := next(demo.make_scenes("val", 1, seed=1)).image).shape or (fewer != other).any()


@pytest.mark.parametrize(
    ("library", "kind", "options"),
    [
        ("mmdet", "DemoCocoDataset", dict(INSTANCES, data_root="data/demo/")),
        ("mmseg", "DemoSegDataset", dict(data_root="data/demo", data_prefix=ADE)),
        ("mmpretrain", "DemoClsDataset", dict(data_root="data/demo", data_prefix="cls/train")),
    ],
)
def test_the_data_sets_make_their_data(monkeypatch, tmp_path, library, kind, options):
    """And read from it what was composed."""
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "NUM_IMAGES", {"train": 8, "val": 8})
    steps = ("LoadImageFromFile", "LoadAnnotations", f"Pack{library.removeprefix('mm').capitalize()}Inputs")
    pipeline = [dict(type=f"{library}.{step}") for step in steps if library != "mmpretrain"]
    if library == "mmdet":
        pipeline[1].update(with_bbox=True, with_mask=True)
    dataset = DATASETS.build(dict(type=kind, pipeline=pipeline, **options))
    assert len(dataset) == 8
    assert tuple(dataset.metainfo["classes"]) == ("background", *CLASSES)[library != "mmseg" :]
    scenes = list(demo.make_scenes("train" if library == "mmdet" else "val", 8))
    for sample, scene in zip(map(dataset.__getitem__, range(8)), scenes, strict=True):
        if library == "mmpretrain":
            assert sample["img_path"].split("/")[-2] == CLASSES[sample["gt_label"]]
        elif library == "mmseg":
            np.testing.assert_array_equal(sample["data_samples"].gt_sem_seg.data[0], scene.class_map)
        else:
            labels = [label for label, _, is_crowd in scene.instances() if not is_crowd]
            assert sample["data_samples"].gt_instances.labels.tolist() == labels
