"""What each format of a user's folder is read as, and the line that each kind of broken folder gets."""

import hashlib
import json
import os
import re
import tracemalloc
import unicodedata
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest
from PIL import Image

from helpers import folders
from mmlisa.datasets.demo import make_demo, mask_to_rle
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.datasets.folder import displayed_size, split_of
from mmlisa.datasets.formats import read
from mmlisa.datasets.splitting import prepare_data
from mmlisa.datasets.transforms import find_fault

sv = pytest.importorskip("supervision")


def objects_of(dataset):
    """Class, box and outline of each object, by the name of the image."""
    return {
        Path(sample.path).name: sorted(
            (dataset.classes[entry["category_id"]], *map(float, entry["bbox"])) for entry in sample.objects
        )
        for sample in dataset.samples
    }


def assert_equal(dataset, expected, tolerance=0.5):
    found = objects_of(dataset)
    assert found.keys() == expected.keys()
    for name, objects in expected.items():
        assert [entry[0] for entry in found[name]] == [entry[0] for entry in objects]
        for one, other in zip(found[name], objects, strict=True):
            np.testing.assert_allclose(one[1:], other[1:], atol=tolerance)


@pytest.fixture(scope="module")
def by_supervision(tmp_path_factory):
    """The same boxes as supervision writes them, and what the COCO file says."""
    root = tmp_path_factory.mktemp("formats")
    file = folders.write_coco(root / "coco")
    dataset = sv.DetectionDataset.from_coco(str(root / "coco"), str(file))
    dataset.as_yolo(str(root / "yolo" / "images"), str(root / "yolo" / "labels"), str(root / "yolo" / "data.yaml"))
    dataset.as_pascal_voc(str(root / "voc"), str(root / "voc"))
    dataset.as_labelme(str(root / "labelme"), str(root / "labelme"))
    dataset.images_directory_path = None
    content = json.loads(file.read_text())
    names = {image["id"]: image["file_name"] for image in content["images"]}
    expected = {name: [] for name in names.values()}
    for entry in content["annotations"]:
        expected[names[entry["image_id"]]].append((folders.CLASSES[entry["category_id"] - 1], *entry["bbox"]))
    return root, {name: sorted(objects) for name, objects in expected.items()}


@pytest.mark.parametrize(
    ("folder", "kind"), [("coco", "COCO"), ("yolo", "YOLO"), ("voc", "Pascal VOC"), ("labelme", "LabelMe")]
)
def test_formats_written_by_supervision_are_equal(by_supervision, folder, kind):
    root, expected = by_supervision
    assert sum(map(len, expected.values())) == 24
    dataset = read(root / folder)
    assert (dataset.format, dataset.task, dataset.has_masks) == (kind, "detection", False)
    assert_equal(dataset, expected)


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory):
    """Sixteen images of the demo data in three formats."""
    root = tmp_path_factory.mktemp("demo")
    make_demo(root / "COCO", num_images={"train": 12, "val": 4}, progress=False)
    folders.demo_as_yolo(root / "COCO", root / "YOLO", list(CLASSES))
    folders.demo_as_voc(root / "COCO", root / "Pascal VOC")
    return root


@pytest.mark.parametrize("kind", ["COCO", "YOLO", "Pascal VOC"])
def test_demo_data_are_equal_in_three_formats(demo_data, kind):
    dataset = prepare_data(demo_data / kind)
    assert (dataset.format, dataset.classes, dataset.has_masks) == (kind, list(CLASSES), True)
    for split in ("train", "val"):
        demo = folders.demo_objects(demo_data / "COCO", split)
        expected = [(image, objects) for image, objects in demo if objects or split == "val"]
        for sample, (image, wanted) in zip(dataset.split(split), expected, strict=True):
            assert Path(sample.path).name == image["file_name"]
            assert sample.size == (image["width"], image["height"])
            wanted = [entry for entry in wanted if kind != "YOLO" or not entry["iscrowd"]]
            for entry, other in zip(sample.objects, wanted, strict=True):
                assert dataset.classes[entry["category_id"]] == other["name"]
                assert entry["iscrowd"] == other["iscrowd"]
                np.testing.assert_allclose(entry["bbox"], other["bbox"], atol=0.01)  # pixels
                if other["outline"] is not None:
                    np.testing.assert_allclose(entry["segmentation"], other["segmentation"], atol=0.01)


@pytest.mark.parametrize("write", [folders.write_yolo, folders.write_voc])
def test_boxes(tmp_path, write):
    write(tmp_path)
    names = [f"{index:03d}.jpg" for index in range(12)]
    expected = {
        name: sorted((folders.CLASSES[label], *box) for label, box in folders.boxes(i)) for i, name in enumerate(names)
    }
    assert_equal(read(tmp_path), expected, 1e-6)


def test_scores_of_predicted_boxes_change_nothing(tmp_path):
    folders.write_yolo(tmp_path)
    expected = objects_of(read(tmp_path))
    for file in (tmp_path / "labels").iterdir():
        file.write_text("".join(f"{line} 0.9\n" for line in file.read_text().splitlines()))
    assert objects_of(read(tmp_path)) == expected


def test_names_of_classes_beside_yolos_labels_are_not_labels(tmp_path):
    """LabelImg writes them there."""
    folders.write_yolo(tmp_path, 3)
    (tmp_path / "labels" / "classes.txt").write_text("cat\ndog\nnewt\n")
    dataset = read(tmp_path)
    assert (len(dataset.samples), dataset.notes) == (3, [])


def test_voc_that_counts_from_zero_is_not_shifted(tmp_path):
    file = folders.write_voc(tmp_path)
    file.write_text(file.read_text().replace("<xmin>5.0</xmin>", "<xmin>0</xmin>"))
    (_, left, *_), *_ = objects_of(read(tmp_path))["001.jpg"]
    assert left == 6  # as the file says


@pytest.mark.parametrize("suffix", [".JPG", ".bmp", ".webp"])
def test_voc_whose_filename_has_no_suffix(tmp_path, suffix):
    folders.write_voc(tmp_path)
    for path in tmp_path.glob("Annotations/*"):
        edit(path, ".jpg", "")
    for path in tmp_path.glob("JPEGImages/*"):
        path.rename(path.with_suffix(suffix))
    assert {Path(sample.path).suffix for sample in read(tmp_path).samples} == {suffix}


def test_polygons_are_kept_as_they_are(tmp_path):
    folders.write_yolo(tmp_path)
    polygon = [0.125, 0.25, 0.5, 0.25, 0.3, 0.75, 0.125, 0.7]
    for file in (tmp_path / "labels").iterdir():
        file.write_text("1 " + " ".join(map(str, polygon)))
    dataset = read(tmp_path)
    (entry,) = dataset.samples[0].objects
    np.testing.assert_allclose(entry["segmentation"], [np.array(polygon) * np.tile([64, 48], 4)], atol=1e-9)
    assert entry["bbox"] == pytest.approx([8, 12, 24, 24])
    corners = (np.array(polygon) * np.tile([64, 48], 4)).reshape(-1, 1, 2).astype(np.float32)
    assert entry["area"] == pytest.approx(cv2.contourArea(corners))
    assert dataset.has_masks


def test_labelme_shapes(tmp_path):
    file = folders.write_labelme(tmp_path)
    content = json.loads(file.read_text())
    content["shapes"] = [
        {"label": "cat", "points": [[30, 20], [10, 5]], "shape_type": "rectangle"},
        {"label": "dog", "points": [[20, 20], [20, 10]], "shape_type": "circle"},
        {"label": "newt", "points": [[1, 1], [9, 1], [1, 9]], "shape_type": "polygon", "group_id": 3},
        {"label": "newt", "points": [[40, 30], [50, 30], [40, 40]], "shape_type": "polygon", "group_id": 3},
        {"label": "cat", "points": [[2, 3], [8, 3], [2, 7]], "shape_type": "polygon", "group_id": 3},
    ]
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    cat, dog, newt, other = dataset.samples[0].objects
    # The numbers of LabelMe's groups are often counted anew for each class.
    assert [dataset.classes[each["category_id"]] for each in (cat, newt, other)] == ["cat", "newt", "cat"]
    assert other["bbox"] == [2, 3, 6, 4]
    assert cat["bbox"] == [10, 5, 20, 15]
    assert dog["bbox"] == pytest.approx([10, 10, 20, 20])
    assert dog["area"] == pytest.approx(np.pi * 100, rel=0.01)
    assert newt["bbox"] == [1, 1, 49, 39]
    assert len(newt["segmentation"]) == 2


def test_labelme_shapes_without_a_type(tmp_path):
    file = folders.write_labelme(tmp_path)
    content = json.loads(file.read_text())
    first, second = content["shapes"]
    first |= {"label": "eft", "shape_type": None}
    second["shape_type"] = []
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert [dataset.classes[entry["category_id"]] for entry in dataset.samples[0].objects] == ["eft", "dog"]


@pytest.mark.parametrize("write", [folders.write_voc, folders.write_labelme])
def test_renamed_images_are_found_by_the_name_of_their_annotations(tmp_path, write):
    write(tmp_path)
    expected = objects_of(read(tmp_path))
    for path in sorted(tmp_path.rglob("*.*")):
        path.rename(path.with_stem(f"new {path.stem}"))
    assert objects_of(read(tmp_path)) == {f"new {name}": objects for name, objects in expected.items()}


@pytest.mark.parametrize("write", [folders.write_voc, folders.write_labelme])
def test_an_image_of_another_split_is_not_taken_for_a_missing_one(tmp_path, write):
    for split in ("train", "val"):
        write(tmp_path / split)
    (missing,) = tmp_path.glob("val/**/003.jpg")
    missing.unlink()
    dataset = read(tmp_path)
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (12, 11)
    assert any("its image '003.jpg' is not in" in note for note in dataset.notes)


@pytest.mark.parametrize("points", [[], [[1, 2, 3]], None, [[1, 1]], "line"])
def test_a_shape_that_is_none_is_left_out(tmp_path, points):
    file = folders.write_labelme(tmp_path)
    content = json.loads(file.read_text())
    content["shapes"][0]["points"] = points
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert sum(len(sample.objects) for sample in dataset.samples) == 23
    assert [note for note in dataset.notes if "000.json, shape 0" in note and "correct it in LabelMe" in note]


def peak_of_reading(root):
    """Bytes of Python's objects."""
    tracemalloc.start()
    try:
        assert read(root).samples
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_labelmes_copies_of_the_images_do_not_stay_in_memory(tmp_path):
    folders.write_labelme(tmp_path)
    size = 2**20
    for file in tmp_path.glob("*.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "imageData": "A" * size}))
    assert peak_of_reading(tmp_path) < 8 * size  # the bytes and the text of one file, and what is parsed of it


def test_memory_does_not_grow_with_images_times_classes(tmp_path):
    file = folders.write_labelme(tmp_path, 40)
    content = json.loads(file.read_text())
    content["shapes"] += [{**content["shapes"][0], "label": f"class {index}"} for index in range(2000)]
    file.write_text(json.dumps(content))
    assert peak_of_reading(tmp_path) < 100 * 40 * 2000  # bytes; a dict takes 184


def test_roboflow_and_splits(tmp_path):
    for split in ("train", "valid", "test"):
        file = folders.write_coco(tmp_path, split, 4)
        content = json.loads(file.read_text())
        content["categories"].insert(0, {"id": 0, "name": "animals", "supercategory": "none"})
        for category in content["categories"][1:]:
            category["supercategory"] = "animals"
        file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert {name: len(dataset.split(name)) for name in ("train", "val", "test")} == {"train": 4, "val": 4, "test": 4}
    assert dataset.classes == folders.CLASSES  # without Roboflow's name of the project
    assert dataset.split("val")[0].path == "valid/000.jpg"


def leave_out_annotations(root, kind, split):
    if kind == "boxes":
        file = root / split / "_annotations.coco.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "annotations": []}))
    for path in root.glob(f"{split}/masks/*"):
        cv2.imwrite(str(path), np.full(folders.SIZE[::-1], 255, np.uint8))


@pytest.mark.parametrize("kind", ["boxes", "class maps"])
def test_splits_without_annotations_are_left_out(tmp_path, kind):
    """Nothing can be measured on them."""
    for split in ("train", "val", "test"):
        if kind == "boxes":
            folders.write_coco(tmp_path, split, 10)
        else:
            folders.write_maps(tmp_path / split, 10)
    for split in ("test", "val"):
        leave_out_annotations(tmp_path, kind, split)
        dataset = prepare_data(tmp_path)
        assert not dataset.split("test")
        assert any(f"none of the 10 images of {split} has an annotation; all are" in note for note in dataset.notes)
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (8, 2)  # drawn from the training


def test_an_image_is_not_replaced_by_one_of_another_split(tmp_path):
    for split in ("train", "valid"):
        folders.write_coco(tmp_path, split, 12)
    (tmp_path / "valid" / "003.jpg").unlink()
    dataset = read(tmp_path)
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (12, 11)
    assert any("valid/_annotations.coco.json: its image '003.jpg' is not in" in note for note in dataset.notes)


def test_values_of_coco_that_are_lists(tmp_path):
    """JSON allows a list where the format has a number or a word."""
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    content["images"].append({**content["images"][0], "id": [1], "file_name": "absent.jpg"})
    content["annotations"][0]["image_id"] = [1]
    content["categories"][0]["supercategory"] = ["animals"]
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert sum(len(sample.objects) for sample in dataset.samples) == 23
    assert any("annotations.json: its image 'absent.jpg' is not in" in note for note in dataset.notes)
    assert dataset.classes == folders.CLASSES


def test_names_in_another_unicode_form_are_found(tmp_path):
    """A Mac decomposes 'é' into two characters, a browser writes one."""
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for index, image in enumerate(content["images"]):
        name = f"{'né'[index % 2]}/é{index // 2}.jpg"
        stored = tmp_path / unicodedata.normalize("NFD", name)
        stored.parent.mkdir(exist_ok=True)
        (tmp_path / image["file_name"]).rename(stored)
        image["file_name"] = unicodedata.normalize("NFC", name)
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert (len(dataset.samples), dataset.notes) == (12, [])
    assert all((tmp_path / sample.path).is_file() for sample in dataset.samples)


def test_an_image_that_may_be_several_is_refused(tmp_path):
    """A folder such as ``images`` is preferred to other folders."""
    file = folders.write_coco(tmp_path)
    for name in ("drawn", "images"):
        (tmp_path / name).mkdir()
    (tmp_path / "drawn" / "003.jpg").write_bytes((tmp_path / "003.jpg").read_bytes())
    (tmp_path / "003.jpg").rename(tmp_path / "images" / "003.jpg")
    assert "images/003.jpg" in {sample.path for sample in read(tmp_path).samples}
    (tmp_path / "images").rename(tmp_path / "kept")
    with pytest.raises(
        ValueError, match=rf"{file.name}: its image '003\.jpg' may be drawn/003\.jpg or kept/003\.jpg; write"
    ):
        read(tmp_path)


def test_categories_of_one_name_are_one_class(tmp_path):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    content["categories"][1]["name"] = content["categories"][0]["name"]
    file.write_text(json.dumps(content))
    assert read(tmp_path).classes == [folders.CLASSES[0], folders.CLASSES[2]]


@pytest.mark.parametrize("size", [(-1, -1), (None, None), (64, None)])
def test_sizes_that_a_coco_file_does_not_know(tmp_path, size):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for image in content["images"]:
        image["width"], image["height"] = size
    file.write_text(json.dumps(content))
    assert {sample.size for sample in read(tmp_path).samples} == {folders.SIZE}


def test_outlines_as_via_writes_them(tmp_path):
    """A flat list without a box and an area."""
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for entry in content["annotations"]:
        x, y, w, h = entry["bbox"]
        entry |= {"segmentation": [x, y, x + w, y, x, y + h], "bbox": [None] * 4, "area": None}
    file.write_text(json.dumps(content))
    entry = read(tmp_path).samples[0].objects[0]
    assert (entry["bbox"], entry["area"]) == ([4, 5, 20, 17], 170)
    assert entry["segmentation"] == [[4, 5, 24, 5, 4, 22]]


def test_masks_that_are_exported_as_crowds_are_objects(tmp_path):
    """CVAT writes every mask as RLE with iscrowd=1; of the class newt, one object of eight is a crowd."""
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for entry in content["annotations"]:
        x, y, w, h = map(int, entry["bbox"])
        mask = np.zeros(folders.SIZE[::-1], bool)
        mask[y : y + h, x : x + w] = True
        entry["segmentation"] = mask_to_rle(mask)
        entry["iscrowd"] = int(entry["category_id"] < 3 or entry["image_id"] == 3)
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert dataset.has_masks
    objects = [entry for sample in dataset.samples for entry in sample.objects]
    assert [entry["category_id"] for entry in objects if entry["iscrowd"]] == [2]
    assert (
        "most annotations of cat, dog are crowds (iscrowd=1), as CVAT exports masks; these 16 are" in dataset.notes[0]
    )
    assert dataset.notes[1] == "1 of 24 objects are crowds or difficult; the training and the results ignore them"


def test_boxes_by_two_corners_are_named(tmp_path):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for entry in content["annotations"]:
        x, y, w, h = entry["bbox"]
        entry["bbox"] = [x, y, x + w, y + h]
    file.write_text(json.dumps(content))
    (note,) = [note for note in read(tmp_path).notes if "(x1, y1, x2, y2)" in note]
    assert note.startswith(f"warning: {file}: 50% of the boxes reach outside their image; if they are (x1, y1, x2, y2)")


def test_coco_2017_layout(tmp_path):
    for split in ("train2017", "val2017"):
        file = folders.write_coco(tmp_path, split, 4)
        (tmp_path / "annotations").mkdir(exist_ok=True)
        file.rename(tmp_path / "annotations" / f"instances_{split}.json")
    (tmp_path / "annotations" / "captions_val2017.json").write_text(
        '{"images": [], "annotations": [], "categories": []}'
    )
    dataset = read(tmp_path)
    assert [sample.path for sample in dataset.split("val")][:1] == ["val2017/000.jpg"]
    assert len(dataset.split("train")) == 4


def test_ultralytics_yaml_of_another_computer(tmp_path):
    file = folders.write_yolo(tmp_path)
    for kind in ("images", "labels"):
        for split, numbers in {"train": range(9), "val": range(9, 12)}.items():
            (tmp_path / kind / split).mkdir()
            for index in numbers:
                (old,) = (tmp_path / kind).glob(f"{index:03d}.*")
                old.rename(tmp_path / kind / split / old.name)
    file.write_text(
        "path: C:\\Users\\me\\animals\ntrain: images\\train\nval: ../images/val\nnames: {0: cat, 1: dog, 2: newt}"
    )
    dataset = read(tmp_path)
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (9, 3)
    assert sum(len(sample.objects) for sample in dataset.samples) == 24


def test_yolo_images_of_two_splits_are_not_trained_on(tmp_path):
    file = folders.write_yolo(tmp_path)
    (tmp_path / "val.txt").write_text("images/000.jpg\nimages/003.jpg\n")
    file.write_text(file.read_text() + "train: images\nval: val.txt\ntest: val.txt\n")
    dataset = read(tmp_path)
    assert sorted(sample.path for sample in dataset.split("val")) == ["images/000.jpg", "images/003.jpg"]
    assert (len(dataset.split("train")), len(dataset.split("test"))) == (10, 0)


def test_voc_splits_and_difficult_objects(tmp_path):
    file = folders.write_voc(tmp_path)
    file.write_text(file.read_text().replace("<object>", "<object><difficult>1</difficult>", 1))
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "val.txt").write_text("000\n003\n")
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("".join(f"{i:03d}\n" for i in (1, 2, *range(4, 12))))
    dataset = read(tmp_path)
    assert sorted(sample.path for sample in dataset.split("val")) == ["JPEGImages/000.jpg", "JPEGImages/003.jpg"]
    assert [entry["iscrowd"] for entry in dataset.split("val")[0].objects] == [1, 0]


def test_a_class_of_difficult_objects_alone_is_named(tmp_path):
    folders.write_voc(tmp_path)
    for path in tmp_path.glob("Annotations/*"):
        path.write_text(path.read_text().replace("<name>newt", "<difficult>1</difficult><name>newt"))
    notes = prepare_data(tmp_path).notes
    assert "8 of 24 objects are crowds or difficult; the training and the results ignore them" in notes
    assert notes[-1].endswith("no training image shows newt, so that the model cannot find them; add images")


def write_lists(folder, **lists):
    folder.mkdir(parents=True)
    for name, numbers in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{index:03d}\n" for index in numbers))


def test_voc_that_lists_training_and_validation_together(tmp_path):
    folders.write_voc(tmp_path)
    write_lists(tmp_path / "ImageSets" / "Main", trainval=range(8), test=range(8, 12))
    dataset = prepare_data(tmp_path)
    counts = [len(dataset.split(name)) for name in ("train", "val", "test")]
    assert counts == [6, 2, 4]
    write_lists(tmp_path / "ImageSets" / "Segmentation", train=range(12))
    (tmp_path / "ImageSets" / "Main" / "val.txt").write_text("003\n")
    assert [sample.path for sample in read(tmp_path).split("val")] == ["JPEGImages/003.jpg"]


@pytest.mark.parametrize("kind", ["", "Segmentation"])
def test_voc_lists_the_splits_of_class_maps(tmp_path, kind):
    folders.write_maps(tmp_path)
    write_lists(tmp_path / "ImageSets" / kind, train=range(3, 12), val=range(3))
    assert [sample.path[-7:] for sample in read(tmp_path).split("val")] == ["000.jpg", "001.jpg", "002.jpg"]


def test_images_that_a_test_shares_with_the_training_are_named(tmp_path):
    """Also if the validation is drawn from the training."""
    folders.write_coco(tmp_path, "train", 20)
    folders.write_coco(tmp_path, "test", 10)
    for index in range(20):
        (tmp_path / "test" / f"{index % 10:03d}.jpg").write_bytes(
            (tmp_path / "train" / f"{index:03d}.jpg").read_bytes()
        )
    dataset = prepare_data(tmp_path)
    (shared,) = [note for note in dataset.notes if "also in train" in note]
    number = len([sample for sample in dataset.split("train") if int(Path(sample.path).stem) >= 10])
    assert shared.startswith(f"warning: {tmp_path}/test/")
    assert f"(in all {number} of the 10 images of test)" in shared


def test_images_beside_a_test_are_trained_on(tmp_path):
    folders.write_classes(tmp_path)
    folders.write_classes(tmp_path / "test")
    folders.write_images(tmp_path / "test" / "unknown")
    dataset = prepare_data(tmp_path)
    assert (dataset.classes, len(dataset.split("test"))) == (folders.CLASSES, 18)
    assert len(dataset.split("train")) + len(dataset.split("val")) == 18


def test_a_test_alone_is_refused(tmp_path):
    file = folders.write_coco(tmp_path)
    file.rename(tmp_path / "annotations_test.json")
    with pytest.raises(
        ValueError, match=r"all 12 images of .* are test images, as .* is called test; rename it, or add"
    ):
        read(tmp_path)


def test_voc_names_with_spaces(tmp_path):
    folders.write_voc(tmp_path)
    for path in sorted(tmp_path.glob("*/*")):
        path.rename(path.with_stem(f"scene {path.stem}"))
    for path in tmp_path.glob("*/*.xml"):
        edit(path, "<filename>", "<filename>scene ")
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "val.txt").write_text("scene 000\nscene 001  1\nscene 002 -1\n")
    names = [f"scene {i:03d}\n" for i in range(3, 12)]
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("".join(names))
    dataset = read(tmp_path)
    assert [Path(sample.path).stem for sample in dataset.split("val")] == [f"scene {i:03d}" for i in range(3)]
    assert len(dataset.split("train")) == 9


def test_voc_outlines(tmp_path):
    file = folders.write_voc(tmp_path)
    outline = "".join(f"<x{i}>{x}</x{i}><y{i}>{y}</y{i}>" for i, (x, y) in enumerate([(6, 7), (20, 7), (6, 20)], 1))
    for path in file.parent.iterdir():
        path.write_text(path.read_text().replace("</object>", f"<polygon>{outline}</polygon></object>"))
    dataset = read(tmp_path)
    entry = dataset.samples[0].objects[0]
    assert dataset.has_masks
    assert entry["segmentation"] == [[5, 6, 19, 6, 5, 19]]
    assert (entry["bbox"], entry["area"]) == ([4, 5, 20, 17], 14 * 13 / 2)


def test_class_maps(tmp_path):
    folders.write_maps(tmp_path)
    (tmp_path / "classes.txt").write_text("cat\ndog\nnewt\n")
    dataset = read(tmp_path)
    assert (dataset.task, dataset.classes) == ("segmentation", folders.CLASSES)
    assert {(s.path, s.seg_map) for s in dataset.samples} == {
        (f"images/{i:03d}.jpg", f"masks/{i:03d}.png") for i in range(12)
    }


@pytest.mark.parametrize(
    ("image", "seg_map"),
    [
        ("images/training/a.jpg", "annotations/training/a.png"),
        ("leftImg8bit/val/ulm/ulm_01_leftImg8bit.png", "gtFine/val/ulm/ulm_01_gtFine_labelIds.png"),
        ("a.jpg", "a_mask.png"),
        ("JPEGImages/a.jpg", "SegmentationClass/a.png"),
        ("train_images/a.jpg", "train_masks/a.png"),
        ("tiff/train/a.tiff", "tiff/train_labels/a.tif"),
        ("Train/Urban/images_png/a.png", "Train/Urban/masks_png/a.png"),
        ("lung-segmentation/images/a.png", "lung-segmentation/masks/a.png"),
    ],
)
def test_pairs_of_images_and_class_maps(tmp_path, image, seg_map):
    for name in (image, image.replace("a.", "b.").replace("01", "02")):
        for path, value in (
            (name, 99),
            (seg_map.replace("a.", "b.").replace("01", "02") if name != image else seg_map, 1),
        ):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(tmp_path / path), np.full((32, 32), value, np.uint8))
    if seg_map == "a_mask.png":
        (tmp_path / "a_mask.png").with_stem("b_mask").write_bytes((tmp_path / "a_mask.png").read_bytes())
    assert (image, seg_map) in {(sample.path, sample.seg_map) for sample in read(tmp_path).samples}


def test_images_and_class_maps_without_a_counterpart(tmp_path):
    """Of the kinds of folders that hold pairs, except the images of a test."""
    folders.write_maps(tmp_path, 24)
    folders.write_images(tmp_path / "images" / "test", 9)
    for name in ("papers", "tif"):
        folders.write_images(tmp_path / name, 9)
    (tmp_path / "masks" / "003.png").rename(tmp_path / "masks" / "003b.png")
    dataset = read(tmp_path)
    assert len(dataset.samples) == 23
    image, seg_map, number, *_ = dataset.notes
    assert image == f"{tmp_path}/images/003.jpg: this image has no class map; add it, or move the image elsewhere"
    assert seg_map.startswith(
        f"{tmp_path}/masks/003b.png: this class map has no image; copy the image to {tmp_path}, or"
    )
    assert number == "number of class maps left out for such problems: 2"
    folders.write_images(tmp_path / "images" / "val", 9)
    with pytest.raises(ValueError, match=r"images/003\.jpg: this image has no class map; .* \(11 such problems in 34 "):
        read(tmp_path)


def test_images_of_voc_that_only_have_boxes_need_no_class_map(tmp_path):
    folders.write_voc(tmp_path)
    (tmp_path / "SegmentationClass").mkdir()
    cv2.imwrite(str(tmp_path / "SegmentationClass" / "003.png"), np.eye(64, dtype=np.uint8)[:48])
    dataset = read(tmp_path, "segmentation")
    assert [sample.path for sample in dataset.samples] == ["JPEGImages/003.jpg"]
    assert not any("has no class map" in note for note in dataset.notes)


def test_folders_called_after_splits_and_kinds(tmp_path):
    for split in ("train", "val"):
        folders.write_maps(tmp_path / split, 6)
        for kind in ("images", "masks"):
            (tmp_path / split / kind).rename(tmp_path / f"{split}_{kind}")
    folders.write_images(tmp_path / "papers", 9)
    dataset = read(tmp_path)
    assert (dataset.task, len(dataset.split("train")), len(dataset.split("val"))) == ("segmentation", 6, 6)
    assert not any("papers" in note for note in dataset.notes)


def test_of_several_class_maps_the_train_ids_are_read(tmp_path):
    folders.write_maps(tmp_path)
    for kind in ("labelIds", "labelTrainIds", "color"):  # as Cityscapes does
        for path in tmp_path.glob("masks/???.png"):
            (path.with_stem(f"{path.stem}_gtFine_{kind}")).write_bytes(path.read_bytes())
    for path in tmp_path.glob("masks/???.png"):
        path.unlink()
    dataset = read(tmp_path)
    assert {sample.seg_map[-18:] for sample in dataset.samples} == {"_labelTrainIds.png"}
    assert not any("without" in note or "no image" in note for note in dataset.notes)


@pytest.mark.parametrize(("what", "other"), [("class maps", "labels/003.png"), ("images", "rgb/003.jpg")])
def test_several_class_maps_or_images_of_one_name_are_refused(tmp_path, what, other):
    folders.write_maps(tmp_path)
    first = "images/003.jpg" if what == "images" else "masks/003.png"
    (tmp_path / other).parent.mkdir()
    (tmp_path / other).write_bytes((tmp_path / first).read_bytes())
    listed = " and ".join(f"{tmp_path}/{name}" for name in sorted((first, other)))
    with pytest.raises(ValueError, match=f"{listed} are {what} of one pair; move one of both elsewhere"):
        read(tmp_path)


def test_a_class_map_with_too_many_pixels_is_left_out(tmp_path):
    folders.write_maps(tmp_path)
    path = tmp_path / "masks" / "000.png"
    Image.new("1", (20_000, 20_000)).save(path)
    dataset = read(tmp_path)
    assert len(dataset.samples) == 11
    assert dataset.notes[0] == f"{path}: the class map has too many pixels; cut it and its image into tiles"


def test_masks_in_black_and_white(tmp_path):
    folders.write_maps(tmp_path)
    for path in (tmp_path / "masks").iterdir():
        cv2.imwrite(str(path), (cv2.imread(str(path), 0) == 1) * np.uint8(255))
    dataset = read(tmp_path)
    assert (dataset.label_map, dataset.classes) == ({255: 1}, ["background", "object"])
    (tmp_path / "classes.txt").write_text("skin\nmole\n")
    dataset = read(tmp_path)
    assert (dataset.label_map, dataset.classes) == ({255: 1}, ["skin", "mole"])


def test_masks_with_soft_edges_are_not_class_maps(tmp_path):
    folders.write_maps(tmp_path)
    for path in (tmp_path / "masks").iterdir():
        white = (cv2.imread(str(path), 0) == 1) * np.uint8(255)
        cv2.imwrite(str(path), cv2.resize(cv2.resize(white, (24, 18), interpolation=cv2.INTER_AREA), folders.SIZE))
    for names in ("", "skin\nmole"):
        (tmp_path / "classes.txt").write_text(names)
        with pytest.raises(
            ValueError, match=r"values up to 255; save masks with soft edges in 0 and 255 only, or name"
        ):
            read(tmp_path)
    (tmp_path / "classes.txt").write_text("\n".join(f"class {index}" for index in range(255)))
    assert len(read(tmp_path).classes) == 255


def test_a_class_beyond_the_named_ones(tmp_path):
    folders.write_maps(tmp_path)
    maps = np.stack([cv2.imread(str(path), 0) for path in (tmp_path / "masks").iterdir()])
    highest = int(maps[maps != 255].max())
    (tmp_path / "classes.txt").write_text("\n".join("abcdefgh"[: highest + 1]))
    assert len(read(tmp_path).classes) == highest + 1
    (tmp_path / "classes.txt").write_text("\n".join("abcdefgh"[:highest]))
    with pytest.raises(ValueError, match=rf"hold class {highest}; name {highest + 1} classes in .*classes\.txt"):
        read(tmp_path)


@pytest.mark.parametrize("value", [0, 255])
def test_masks_of_one_value_are_refused(tmp_path, value):
    folders.write_maps(tmp_path)
    for path in (tmp_path / "masks").iterdir():
        cv2.imwrite(str(path), np.full(folders.SIZE[::-1], value, np.uint8))
    with pytest.raises(
        ValueError, match=rf"hold {value} only, of which nothing can be learned; draw objects in 255, or"
    ):
        read(tmp_path)


def test_masks_in_grey_are_named(tmp_path):
    """Programs draw the classes in levels of grey, such as 0 and 128."""
    folders.write_maps(tmp_path)
    assert not any("the model gets" in note for note in read(tmp_path).notes)
    for path in (tmp_path / "masks").iterdir():
        cv2.imwrite(str(path), (cv2.imread(str(path), 0) == 1) * np.uint8(128))
    dataset = read(tmp_path)
    assert dataset.notes[0] == (
        f"warning: {tmp_path}: the class maps hold only the values 0, 128, and the model gets 129 classes; number the classes "
        "0, 1, 2 … in the maps"
    )
    (tmp_path / "classes.txt").write_text("\n".join(f"class {index}" for index in range(129)))
    assert not read(tmp_path).notes


@pytest.mark.parametrize("white", [0, 255])
@pytest.mark.parametrize("names", ["mole", "skin\nmole\nhair"])
def test_values_in_black_and_white_that_names_do_not_explain(tmp_path, names, white):
    """255 may be the object or not be annotated; with 0 alone there is nothing to learn."""
    folders.write_maps(tmp_path)
    for path in (tmp_path / "masks").iterdir():
        cv2.imwrite(str(path), (cv2.imread(str(path), 0) == 1) * np.uint8(white))
    (tmp_path / "classes.txt").write_text(names)
    held, number = "0 and 255" if white else "0", len(names.split())
    message = (
        rf"masks/\d+\.png: .* hold {held} only, but .*classes\.txt names {number}; if 255 is the object, name two, the"
    )
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("layout", ["", "images/", "train/"])
def test_class_folders(tmp_path, layout):
    folders.write_classes(tmp_path / layout)
    dataset = read(tmp_path)
    assert (dataset.task, dataset.classes) == ("classification", folders.CLASSES)
    assert {(Path(sample.path).parent.name, dataset.classes[sample.label]) for sample in dataset.samples} == {
        (name, name) for name in folders.CLASSES
    }
    assert len(dataset.split("train")) == (18 if layout == "train/" else 0)


@pytest.mark.parametrize("name", ["annotations.xml", "labels.csv", "{}.txt", "{}.jpg.json"])
def test_folders_of_images_annotated_in_an_unknown_format_are_not_classes(tmp_path, name):
    """CVAT's XML, a table, KITTI's or DOTA's text, Supervisely's JSON."""
    folders.write_classes(tmp_path)
    images = sorted(tmp_path.glob("*/*.jpg"))
    if "{}" in name:
        for image in images:
            image.with_name(name.format(image.stem)).write_text("{}")
    else:
        entries = "".join(f'<image name="{image.name}"/>' for image in images)
        (tmp_path / name).write_text(f"<annotations>{entries}</annotations>")
    with pytest.raises(
        ValueError, match=r"(annotations|labels|000)\S* seems to annotate the images in .* --task classification"
    ):
        read(tmp_path)
    assert read(tmp_path, "classification").classes == folders.CLASSES


def test_kittis_folders_are_not_classes(tmp_path):
    for split in ("training", "testing"):
        for seed, name in enumerate(("image_2", "image_3")):
            folders.write_images(tmp_path / split / name, 12, seed=seed)
    (tmp_path / "training" / "label_2").mkdir()
    for index in range(10):
        (tmp_path / "training" / "label_2" / f"{index:03d}.txt").write_text("Car 0 0 0 1 2 3 4 0 0 0 0 0 0 0")
    with pytest.raises(
        ValueError, match=r"label_2/000\.txt seems to annotate the images in a format that is not known"
    ):
        read(tmp_path)


def test_files_beside_the_images_may_be_something_else(tmp_path):
    folders.write_classes(tmp_path)
    (tmp_path / "licence.txt").write_text("000.jpg is by me")
    (tmp_path / "sizes.csv").write_text("000.jpg,64\n")
    (tmp_path / "cat" / "000.txt").write_text("a cat")
    assert read(tmp_path).classes == folders.CLASSES


@pytest.mark.parametrize("names", [("images_jpg", "masks_jpg"), ("rgb", "depth")])
def test_kinds_of_pictures_are_not_classes(tmp_path, names):
    for seed, name in enumerate(names):
        folders.write_images(tmp_path / name, 6, seed=seed)
    with pytest.raises(ValueError, match="holds 12 images but no annotations"):
        read(tmp_path)


def test_images_of_formats_that_are_not_read_are_named(tmp_path):
    folders.write_classes(tmp_path, 10)
    (tmp_path / "cat" / "000.jpg").rename(tmp_path / "cat" / "000.HEIC")
    dataset = read(tmp_path)
    assert len(dataset.samples) == 29
    assert dataset.notes[0] == f"{tmp_path}/cat/000.HEIC: images of this format are not read; save it as JPEG or PNG"
    for path in (tmp_path / "dog").iterdir():
        path.rename(path.with_suffix(".avif"))
    with pytest.raises(
        ValueError, match=r"cat/000\.HEIC: images of .* as JPEG or PNG \(11 such problems in 30 images\)"
    ):
        read(tmp_path)


def test_jfif_is_a_jpeg(tmp_path):
    folders.write_classes(tmp_path)
    for path in sorted(tmp_path.glob("*/*")):
        path.rename(path.with_suffix(".jfif"))
    dataset = prepare_data(tmp_path)
    assert {sample.format for sample in dataset.samples} == {"JPEG"}
    assert len(dataset.samples) == 18


def test_a_class_may_be_called_train(tmp_path):
    for name in ("bus", "car", "train"):
        folders.write_images(tmp_path / name, 6)
    dataset = read(tmp_path)
    assert (dataset.classes, len(dataset.samples)) == (["bus", "car", "train"], 18)


def test_a_split_without_class_folders_is_not_a_class(tmp_path):
    folders.write_classes(tmp_path / "train")
    folders.write_images(tmp_path / "test", 6)
    assert read(tmp_path).classes == folders.CLASSES


def test_splits_without_class_folders_are_not_classes(tmp_path):
    for name in ("train", "val"):
        folders.write_images(tmp_path / name, 6)
    with pytest.raises(ValueError, match="but no annotations"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["unknown", "test"])
def test_folders_that_train_lacks_are_not_classes(tmp_path, name):
    """Tests without labels lie in a folder of any name."""
    folders.write_classes(tmp_path / "train")
    folders.write_images(tmp_path / "test" / name, 6)
    folders.write_images(tmp_path / "test" / "cat", 6, seed=9)
    folders.write_images(tmp_path / "seg_pred", 6)
    dataset = read(tmp_path)
    assert (dataset.classes, len(dataset.split("test")), len(dataset.samples)) == (folders.CLASSES, 6, 24)
    assert "outside of the class folders (those in train, if there are splits); all 12 such" in dataset.notes[0]


def test_splits_within_folders_of_the_same_name(tmp_path):
    for name in ("training_set", "test_set"):
        folders.write_classes(tmp_path / name / name)
    dataset = read(tmp_path)
    assert (dataset.classes, len(dataset.split("train")), len(dataset.split("test"))) == (folders.CLASSES, 18, 18)


def test_a_class_that_is_called_after_its_split(tmp_path):
    for name in ("bus", "train"):
        folders.write_images(tmp_path / "train" / name / "morning", 6)
    assert read(tmp_path).classes == ["bus", "train"]


def test_folders_that_look_like_splits_are_not_classes(tmp_path):
    for name in ("train_data", "test_data"):
        folders.write_classes(tmp_path / name)
    with pytest.raises(ValueError, match=r"the folders test_data, train_data look like splits, .*; call splits train"):
        read(tmp_path)


def test_a_task_chooses_among_annotations(tmp_path):
    folders.write_coco(tmp_path / "all")
    folders.write_maps(tmp_path / "ade")
    assert read(tmp_path).task == "detection"
    assert read(tmp_path, "segmentation").task == "segmentation"


def test_an_image_annotated_twice_is_refused(tmp_path):
    file = folders.write_coco(tmp_path)
    (tmp_path / "again.json").write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=r"another file annotates .*; move one of both files elsewhere"):
        read(tmp_path)


def test_an_image_listed_twice_in_a_file_is_refused(tmp_path):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    content["images"].append({**content["images"][3], "id": 99})  # as Label Studio has it for two annotators
    file.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"annotations\.json: two of its images are 003\.jpg; keep one of both entries"
    ):
        read(tmp_path)


def test_two_yaml_files_are_refused(tmp_path):
    file = folders.write_yolo(tmp_path)
    (tmp_path / "dataset.yaml").write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="both of YOLO; name the folder of one of them"):
        read(tmp_path)


def test_labels_in_another_encoding_are_named(tmp_path):
    folders.write_yolo(tmp_path)
    label = next(path for path in sorted(tmp_path.rglob("*.txt")) if path.read_text())
    label.write_bytes(label.read_text().encode("utf-16"))
    with pytest.raises(ValueError, match=rf"{label.name} is not UTF-8 text .*; save it in that encoding"):
        read(tmp_path)


# --- broken folders ----------------------------------------------------------------------------------------------------------


def edit(file, old, new, count=-1):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, count))


def class_number_far_from_the_others(root):
    folders.write_yolo(root).write_text("names: {0: cat, 2000: dog}")


def class_number_that_int_cannot_read(root):
    folders.write_yolo(root).write_text("names: {0: cat, ²: dog}")


def no_labels(root):
    folders.write_images(root / "pictures")


def labels_without_images(root):
    folders.write_yolo(root)
    for index in range(6):
        (root / "images" / f"{index:03d}.jpg").unlink()


def class_out_of_range(root):
    folders.write_yolo(root)
    for file in (root / "labels").iterdir():
        file.write_text("7 0.5 0.5 0.2 0.2")


def outside_0_to_1(root):
    folders.write_yolo(root)
    for file in (root / "labels").iterdir():
        file.write_text("1 30 20 12 9")


def mixed_formats(root):
    folders.write_yolo(root / "a")
    folders.write_voc(root / "b")


def one_image(root):
    folders.write_yolo(root, 1)


def unreadable_yaml(root):
    folders.write_yolo(root).write_text("names: [cat, dog\ntrain: {")


def polygon_with_two_points(root):
    folders.write_labelme(root)
    for file in root.glob("*.json"):
        content = json.loads(file.read_text())
        content["shapes"][0]["points"] = [[1, 2], [3, 4]]
        file.write_text(json.dumps(content))


def same_name_in_two_splits(root):
    for split in ("train", "valid"):
        folders.write_coco(root, split, 6)
    for index in range(2):
        name = f"{index:03d}.jpg"
        (root / "valid" / name).write_bytes((root / "train" / name).read_bytes())


def spaces_and_unicode(root):
    folders.write_yolo(root)
    for kind in ("images", "labels"):
        for path in sorted((root / kind).iterdir()):
            path.rename(path.with_stem(f"Größe – 写真 {path.stem}"))


def name_in_latin_1(root):
    folders.write_classes(root)
    path = root / "cat" / "000.jpg"
    path.rename(path.with_name(os.fsdecode("Straße.jpg".encode("latin-1"))))


def name_with_a_tab(root):
    folders.write_maps(root)
    for path in (root / "images" / "000.jpg", root / "masks" / "000.png"):
        path.rename(path.with_stem("a\tb"))


def name_with_a_line_separator(root):
    folders.write_classes(root)
    (root / "cat" / "000.jpg").rename(root / "cat" / "a\u2028b.jpg")


def name_with_a_space_in_front(root):
    folders.write_classes(root)
    (root / "cat").rename(root / " cat")


def read_only(root):
    folders.write_coco(root)
    for path in (*root.iterdir(), root):
        path.chmod(0o555 if path.is_dir() else 0o444)


def one_pixel(root):
    folders.write_classes(root)
    for name in folders.CLASSES:
        cv2.imwrite(str(root / name / "000.jpg"), np.zeros((1, 1, 3), np.uint8))


def huge(root):
    folders.write_classes(root)
    for name in folders.CLASSES:
        Image.new("1", (20_000, 20_000)).save(root / name / "huge.png")


def cmyk(root):
    folders.write_classes(root)
    Image.open(root / "cat" / "000.jpg").convert("CMYK").save(root / "cat" / "000.jpg")


def exif_rotation(root):
    folders.write_coco(root)
    for index in range(6):
        image = Image.open(root / f"{index:03d}.jpg")
        exif = image.getexif()
        exif[0x0112] = 6
        image.save(root / f"{index:03d}.jpg", exif=exif)


def empty_classes(root):
    file = folders.write_yolo(root)
    edit(file, "- newt", "- newt\n- axolotl")


def train_equals_val(root):
    file = folders.write_yolo(root)
    file.write_text(file.read_text() + "train: images\nval: images\n")


def symlinks(root):
    folders.write_yolo(root.parent / "elsewhere")
    root.mkdir(exist_ok=True)
    for path in (root.parent / "elsewhere").iterdir():
        (root / path.name).symlink_to(path)
    (root / "images" / "loop").symlink_to(root)


def windows_paths(root):
    file = folders.write_coco(root)
    edit(file, '"file_name": "', '"file_name": "D:\\\\data\\\\pictures\\\\')


def few_of_many(root):
    folders.write_coco(root)
    for index in range(3, 12):
        (root / f"{index:03d}.jpg").unlink()


def truncated_json(root):
    file = folders.write_coco(root)
    file.write_text(file.read_text()[:500])


def truncated_images(root):
    folders.write_classes(root)
    for name in folders.CLASSES:
        path = root / name / "001.jpg"
        path.write_bytes(path.read_bytes()[:300])


def colour_maps(root):
    folders.write_maps(root)
    for path in (root / "masks").iterdir():
        cv2.imwrite(str(path), np.zeros((48, 64, 3), np.uint8))


def no_names(root):
    folders.write_yolo(root).unlink()


def not_a_coco_file(root):
    edit(folders.write_coco(root), '"file_name": "000.jpg", "width": 64', '"file_name": "000.jpg", "width": 640000')
    edit(root / "annotations.json", '"category_id": 1', '"category_id": 9')


def empty_folder(root):
    root.mkdir(exist_ok=True)


REFUSED = {
    no_labels: r"data holds 12 images but no annotations: add them as COCO",
    labels_without_images: r"labels/000\.txt: no image belongs to these labels; copy it to .*data, or remove the labels \(6 such",
    class_out_of_range: r"labels/000\.txt, line 1: no category has category_id 7; correct it, or the names in data\.yaml",
    outside_0_to_1: r"labels/000\.txt, line 1: the coordinates 30 20 12 9 leave 0 to 1; write .* in 12 objects\)",
    class_number_far_from_the_others: r"data\.yaml: names has 2 entries, and one is class 2000; number the classes from 0",
    class_number_that_int_cannot_read: r"data\.yaml has no list of class names",
    mixed_formats: r"several formats \(YOLO: a/data\.yaml; Pascal VOC: b/.*\.xml\); move each format",
    one_image: r"data holds only 1 different image; .* add images",
    unreadable_yaml: r"data\.yaml is not valid YAML \(.*: line 2\); export it again",
    polygon_with_two_points: r"000\.json, shape 0: a polygon of .* has 4 numbers; it needs three .*; correct it in LabelMe",
    one_pixel: r"cat/000\.jpg: the image has 1x1 pixels; replace it",
    huge: r"cat/huge\.png: the image has .*pixels; cut it into tiles",
    exif_rotation: r"000\.jpg: the image has 48x64 pixels, turned by its EXIF tag, its annotation says 64x48; save it",
    few_of_many: r"annotations\.json: its image '003\.jpg' is not in .*; copy it there",
    truncated_json: r"annotations\.json is not valid JSON .*; export it again",
    truncated_images: r"001\.jpg: the image cannot be read .*; export or copy it again",
    colour_maps: r"masks/000\.png: the class map is a colour picture; save it as an 8-bit picture",
    no_names: r"labels/000\.txt belongs to YOLO, but .*data has no data\.yaml; add one with names",
    not_a_coco_file: r"annotations\.json, image 1: .*; correct it, or export the file again",
    name_in_latin_1: r"b'.*/data/cat/Stra\\xdfe\.jpg': this path is not UTF-8; rename the file or folder",
    name_with_a_tab: r"'.*/data/images/a\\tb\.jpg': this path holds a tab or a line break, or begins with a space; rename",
    name_with_a_line_separator: r"'.*/data/cat/a\\u2028b\.jpg': this path holds a tab or a line break, or begins",
    name_with_a_space_in_front: r"'.*/data/ cat/000\.jpg': this path holds a tab or a line break, or begins with a space",
    empty_folder: r"data holds no image .*; name the folder that holds them",
}
NOTED = {
    same_name_in_two_splits: r"valid/000\.jpg: this image is also in train \(in all 2 of the 6 images of val\).*; keep each",
    cmyk: r"cat/000\.jpg: the image is CMYK and is read as RGB",
    train_equals_val: r"warning: .*data\.yaml: all images of train are also in val .*; they are trained on, and, .* is drawn",
    empty_classes: r"no training image shows axolotl, so that .*; add images",
}
READ = (spaces_and_unicode, read_only, symlinks, windows_paths)


def checksums(root):
    return {
        path.relative_to(root): (path.stat().st_mtime_ns, hashlib.md5(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("build", [*REFUSED, *NOTED, *READ], ids=lambda build: build.__name__)
def test_a_broken_folder_gets_one_line(tmp_path, build):
    root = tmp_path / "data"
    build(root)
    before = checksums(root)
    if build in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[build]) as raised:
            prepare_data(root)
        assert "\n" not in str(raised.value)
    else:
        dataset = prepare_data(root)
        notes = dataset.notes
        assert len(dataset.samples) in (12, 18)
        assert all(sample.objects for sample in dataset.samples) or dataset.task == "classification"
        if build in NOTED:
            assert [note for note in notes if re.search(NOTED[build], note)], notes
        else:
            assert len(notes) == 1  # of the split
    assert checksums(root) == before


def test_a_few_bad_entries_are_left_out(tmp_path):
    folders.write_yolo(tmp_path)
    edit(tmp_path / "labels" / "003.txt", "0 ", "5 ", 1)
    dataset = prepare_data(tmp_path)
    assert sum(len(sample.objects) for sample in dataset.samples) == 23
    listed, counted, *_ = dataset.notes
    assert "003.txt, line 1: no category has category_id 5" in listed
    assert counted == "number of objects left out for such problems: 1"


def test_declared_sizes_of_turned_images_may_be_those_displayed(tmp_path):
    exif_rotation(tmp_path)
    content = json.loads((tmp_path / "annotations.json").read_text())
    for image in content["images"][:6]:
        image["width"], image["height"] = 48, 64
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    dataset = prepare_data(tmp_path)
    assert dataset.samples[0].size == (48, 64) == cv2.imread(str(tmp_path / "000.jpg")).shape[1::-1]


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder; name the folder"):
        read(tmp_path / "none")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("entry", [b"garbage", b"II*\0"])
def test_a_damaged_exif_entry_turns_nothing(entry, tmp_path):
    Image.new("RGB", (9, 7)).save(tmp_path / "a.png", exif=b"Exif\0\0" + entry)
    with Image.open(tmp_path / "a.png") as image:
        assert displayed_size(image) == cv2.imread(str(tmp_path / "a.png")).shape[1::-1]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif"])
def test_the_displayed_size_is_opencvs(name, tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (9, 7)).save(tmp_path / name, exif=exif)
    with Image.open(tmp_path / name) as image:
        assert displayed_size(image) == mmcv.imread(str(tmp_path / name)).shape[1::-1]


def test_an_orientation_in_xmp_turns_nothing(tmp_path):
    Image.new("RGB", (9, 7)).save(tmp_path / "a.jpg", xmp=folders.TURNED_XMP)
    with Image.open(tmp_path / "a.jpg") as image:
        assert displayed_size(image) == mmcv.imread(str(tmp_path / "a.jpg")).shape[1::-1] == (9, 7)


def test_turned_webp_images_are_left_out(tmp_path):
    """Whether OpenCV turns them depends on its version."""
    folders.write_classes(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    first = sorted(tmp_path.rglob("*.jpg"))[0]
    with Image.open(first) as image:
        image.save(first.with_suffix(".webp"), exif=exif)
    dataset = prepare_data(tmp_path)
    assert any("webp: an EXIF tag turns it" in note for note in dataset.notes)
    assert not any(sample.path.endswith(".webp") for sample in dataset.samples)


@pytest.mark.parametrize(
    ("path", "words", "split"),
    [
        ("train/images/val/1.jpg", False, "val"),
        ("Validation_2/val/train-1/1.jpg", False, "train"),
        ("images/train.jpg", False, ""),
        ("val/annotations/instances_train2017.json", True, "train"),
        ("val/annotations/instances.json", True, "val"),
        ("train_images/1.jpg", False, "train"),
        ("test_set/val2017_masks/1.png", False, "val"),
        ("test_set/1.jpg", False, "test"),
        ("steam_train/set/1.jpg", False, ""),
    ],
)
def test_the_split_is_the_nearest_name(path, words, split):
    assert split_of(path, words) == split


def test_images_of_16_bits_are_told_apart(tmp_path):
    folders.write_yolo(tmp_path)
    for path in (tmp_path / "images").iterdir():
        grey = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE).astype(np.uint16)
        cv2.imwrite(str(path.with_suffix(".png")), 256 * grey)
        path.unlink()
    dataset = prepare_data(tmp_path)
    assert len({sample.hash.tobytes() for sample in dataset.samples}) == 12
    assert "of the image's 16 bits per pixel the upper 8 are read" in dataset.notes[0]


def test_a_jpeg_that_training_would_refuse_is_left_out(tmp_path):
    folders.write_yolo(tmp_path)
    path = tmp_path / "images" / "003.jpg"
    content = bytearray(path.read_bytes())
    content[-60:-40] = b"\xff\x00" * 10
    path.write_bytes(content)
    with Image.open(path) as image:
        image.load()  # Pillow reads it
    assert find_fault(bytes(content))
    dataset = prepare_data(tmp_path)
    assert "003.jpg: the image is damaged" in dataset.notes[0]
    assert len(dataset.samples) == 11


@pytest.mark.parametrize("kind", ["GIF", "TGA"])
def test_files_that_opencv_cannot_decode_are_left_out(tmp_path, kind):
    """Pillow reads them whatever their suffix is. Builds of OpenCV differ in GIF and AVIF, but none reads TGA."""
    folders.write_yolo(tmp_path)
    path = tmp_path / "images" / "003.jpg"
    with Image.open(path) as image:
        image.save(path, kind)
    dataset = prepare_data(tmp_path)
    is_left_out = cv2.imread(str(path)) is None
    assert len(dataset.samples) == 12 - is_left_out
    assert (
        any(f"003.jpg: OpenCV cannot decode this file, whose format is {kind}; save" in n for n in dataset.notes)
        == is_left_out
    )


def test_training_images_without_objects_do_not_count(tmp_path):
    """mmdet drops them; validation and test images without objects show false alarms."""
    for split in ("train", "valid"):
        file = folders.write_coco(tmp_path, split)
        content = json.loads(file.read_text())
        content["annotations"] = content["annotations"][6:]  # two each on 12 images
        file.write_text(json.dumps(content))
    dataset = prepare_data(tmp_path)
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (9, 12)
    assert dataset.notes == [f"{tmp_path}: 3 of 12 training images show no object and are left out"]


def test_a_training_without_objects_is_refused(tmp_path):
    for split in ("train", "valid"):
        file = folders.write_coco(tmp_path, split)
        content = json.loads(file.read_text())
        content["annotations"] = content["annotations"] if split == "valid" else []
        file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="has no training image with an object; annotate some"):
        prepare_data(tmp_path)


def test_images_that_yolo_does_not_list_are_not_lost(tmp_path):
    file = folders.write_yolo(tmp_path)
    (tmp_path / "train.txt").write_text("".join(f"images/{i:03d}.jpg\n" for i in range(6)))
    (tmp_path / "val.txt").write_text("images/006.jpg\n")
    file.write_text(file.read_text() + "train: train.txt\nval: val.txt\n")
    dataset = read(tmp_path)
    assert (len(dataset.samples), dataset.notes) == (7, [])


def test_images_of_yolos_lists_that_are_missing(tmp_path):
    """Unless all images of a test are, which was not downloaded."""
    file = folders.write_yolo(tmp_path, 24)
    lists = {"train": range(22), "val": (22, 23), "test": range(50, 90)}
    for split, numbers in lists.items():
        (tmp_path / f"{split}.txt").write_text("".join(f"./images/{i:03d}.jpg\n" for i in numbers))
    file.write_text(file.read_text() + "".join(f"{split}: {split}.txt\n" for split in lists))
    for index in range(2):
        (tmp_path / "images" / f"{index:03d}.jpg").unlink()
        (tmp_path / "labels" / f"{index:03d}.txt").unlink()
    dataset = read(tmp_path)
    assert len(dataset.samples) == 22
    listed = (
        f"{tmp_path}/train.txt: its image './images/001.jpg' is not in {tmp_path}; copy it there, or remove the line"
    )
    assert dataset.notes[1:] == [listed, "number of images left out for such problems: 2"]
    (tmp_path / "images" / "002.jpg").rename(tmp_path / "images" / "002.png")
    with pytest.raises(
        ValueError, match=r"train\.txt: its image '\./images/000\.jpg' is not in .* \(3 such problems in 24 "
    ):
        read(tmp_path)


def test_keypoints_are_not_outlines(tmp_path):
    file = folders.write_yolo(tmp_path)
    expected = objects_of(read(tmp_path))
    file.write_text(file.read_text() + "kpt_shape: [2, 3]\n")
    for path in (tmp_path / "labels").iterdir():
        path.write_text("".join(f"{line} 0.5 0.5 2 0.1 0.2 0\n" for line in path.read_text().splitlines()))
    dataset = read(tmp_path)
    assert objects_of(dataset) == expected
    assert not dataset.has_masks
    assert "data.yaml: its keypoints are not used, only its boxes" in dataset.notes[0]


@pytest.mark.parametrize("outline", [[], [[]], None])
def test_boxes_among_outlines_stay(tmp_path, outline):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for index, entry in enumerate(content["annotations"]):
        x, y, w, h = entry["bbox"]
        entry["segmentation"] = [[x, y, x + w, y, x, y + h]] if index % 3 else outline
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert sum(len(sample.objects) for sample in dataset.samples) == 24
    assert dataset.notes == ["8 of 24 objects have no outline; their box is taken for it"]


def test_the_folders_of_images_are_splits_too(tmp_path):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for index, image in enumerate(content["images"]):
        target = tmp_path / ("val" if index < 3 else "train") / image["file_name"]
        target.parent.mkdir(exist_ok=True)
        (tmp_path / image["file_name"]).rename(target)
        image["file_name"] = f"{target.parent.name}/{target.name}"
    file.write_text(json.dumps(content))
    dataset = read(tmp_path)
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (9, 3)
