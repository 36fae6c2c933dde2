"""Predictions as annotations: our own readers, which follow the tools' formats, find the objects that were written."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from mmlisa.data.preparation import prepare_data
from mmlisa.errors import UserError
from mmlisa.inference.annotations import write_annotations
from mmlisa.runtime import encode_mask

NAMES = ["cat", "dog"]
HEIGHT, WIDTH = 80, 120


def square(x, y, side):
    return encode_mask([(x, y, np.ones((side, side), bool))], (HEIGHT, WIDTH))


@pytest.fixture
def entries(tmp_path):
    """An image with two objects, and one with one."""
    found = []
    for name in ("a", "b"):
        noise = np.random.default_rng(ord(name)).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{name}.png")
        found.append(dict(source=str(tmp_path / f"{name}.png"), picture=f"out/{name}.png", height=HEIGHT, width=WIDTH))
    one = dict(category="dog", category_id=1, score=0.9, bbox=[10, 20, 30, 30], segmentation=square(10, 20, 30))
    other = dict(category="cat", category_id=0, score=0.8, bbox=[60, 5, 40, 40], segmentation=square(60, 5, 40))
    return [found[0] | dict(instances=[one, other]), found[1] | dict(instances=[other])]


@pytest.mark.parametrize("masks", [True, False])
def test_coco(entries, tmp_path, masks):
    if not masks:
        for instance in entries[0]["instances"]:  # the second entry shares one
            del instance["segmentation"]
    coco = COCO(write_annotations("cvat", entries, NAMES, tmp_path / "out"))
    assert {image["file_name"] for image in coco.dataset["images"]} == {"a.png", "b.png"}
    assert min([*coco.imgs, *coco.anns, *coco.cats]) == 1
    dog, cat, _ = coco.dataset["annotations"]
    assert [coco.cats[one["category_id"]]["name"] for one in (dog, cat)] == ["dog", "cat"]
    assert dog["bbox"] == [10, 20, 30, 30]
    assert dog["area"] == 900
    if masks:
        expected = np.zeros((HEIGHT, WIDTH), bool)
        expected[20:50, 10:40] = True
        assert (coco.annToMask(dog) == expected).mean() > 0.99


@pytest.mark.parametrize("form", ["labelme", "yolo"])
def test_our_readers_find_the_same_objects(entries, tmp_path, form):
    write_annotations(form, entries, NAMES, tmp_path)
    if form == "yolo":
        (tmp_path / "images").mkdir()
        for entry in entries:
            Path(entry["source"]).rename(tmp_path / "images" / Path(entry["source"]).name)
    dataset = prepare_data(str(tmp_path), "detection", (), "on")
    (sample,) = [sample for sample in dataset.samples if Path(sample.path).stem == "a"]
    boxes = {dataset.classes[one["category_id"]]: one["bbox"] for one in sample.objects}
    assert boxes.keys() == set(NAMES)
    np.testing.assert_allclose(boxes["dog"], [10, 20, 30, 30], atol=1.5)
    np.testing.assert_allclose(boxes["cat"], [60, 5, 40, 40], atol=1.5)


def test_labelme_finds_its_image(entries, tmp_path):
    folder = write_annotations("labelme", entries, NAMES, tmp_path / "out" / "annotations")
    content = json.loads((folder / "a.json").read_text())
    assert (folder / content["imagePath"]).resolve() == tmp_path / "a.png"


def test_what_has_no_objects(tmp_path):
    for entry in (dict(source="clip.mp4", frames=[]), dict(source="a.png", segments=[])):
        with pytest.raises(UserError, match=entry["source"]):
            write_annotations("coco", [entry], NAMES, tmp_path)
