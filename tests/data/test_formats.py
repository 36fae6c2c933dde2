"""Readers of annotation formats, whole kinds of folders each."""

import json
import shutil
from base64 import b64encode

import cv2
import numpy as np
import pytest
import yaml
from PIL import Image
from pycocotools import mask as coco_mask

from helpers import folders
from helpers.folders import noted, refuses
from mmlisa.data.preparation import prepare_data, read, write_data
from mmlisa.datasets.demo import CLASSES, make_demo


def objects(dataset, index=0):
    """Class names and boxes of an image."""
    return [(dataset.classes[entry["category_id"]], entry["bbox"]) for entry in dataset.samples[index].objects]


@pytest.mark.parametrize("write", [folders.write_coco, folders.write_yolo, folders.write_labelme])
def test_boxes(tmp_path, write):
    write(tmp_path)
    dataset = prepare_data(tmp_path)
    assert dataset.classes == folders.CLASSES
    assert (len(dataset.split("train")), len(dataset.split("val"))) == (9, 3)
    for index in (0, 5):
        expected = [(folders.CLASSES[label], box) for label, box in folders.boxes(index)]
        for (name, box), (known, corners) in zip(objects(dataset, index), expected, strict=True):
            assert name == known
            assert box == pytest.approx(corners, abs=1e-6)
    assert dataset.samples[0].size == folders.SIZE


@pytest.mark.parametrize("write", [folders.demo_as_yolo, folders.demo_as_voc])
def test_demo_data_are_equal_in_all_formats(tmp_path, write):
    make_demo(tmp_path / "demo", num_images={"train": 3, "val": 2})
    coco, other = read(tmp_path / "demo"), read(write(tmp_path / "demo", tmp_path / "other"))
    assert coco.has_masks
    assert not other.has_masks
    for split, number in {"train": 3, "val": 2}.items():
        pairs = list(zip(coco.split(split), other.split(split), strict=True))
        assert len(pairs) == number
        for ours, theirs in pairs:
            assert ours.size == theirs.size
            for a, b in zip(ours.objects, theirs.objects, strict=True):
                assert coco.classes[a["category_id"]] == other.classes[b["category_id"]]
                assert a["bbox"] == pytest.approx(b["bbox"], abs=1e-3)


def test_coco_beside_class_maps_and_class_folders(tmp_path):
    """The demo data hold three tasks; `task` chooses."""
    make_demo(tmp_path / "demo", num_images={"train": 3, "val": 2})
    maps, names = read(tmp_path / "demo" / "ade"), read(tmp_path / "demo" / "cls")
    assert (maps.task, len(maps.split("train")), len(maps.split("val"))) == ("segmentation", 3, 2)
    assert read(tmp_path / "demo", "segmentation").classes == maps.classes
    assert (names.task, names.classes) == ("classification", [*CLASSES])
    assert {sample.split for sample in names.samples} == {"train", "val"}


def test_yolo_polygons_and_keypoints(tmp_path):
    file = folders.write_yolo(tmp_path, 2)
    for name in ("000", "001"):
        (tmp_path / "labels" / f"{name}.txt").write_text("1 0.25 0.25 0.5 0.25 0.5 0.75\n")
    dataset = read(tmp_path)
    assert dataset.samples[0].objects[0]["segmentation"] == [[16, 12, 32, 12, 32, 36]]
    assert objects(dataset) == [("dog", [16, 12, 16, 24])]
    (tmp_path / "labels" / "000.txt").write_text(
        "".join(f"1 0.5 0.5 0.25 0.5 0.4 0.6 0.5 0.6 0.45 0.{digit}\n" for digit in range(10))
    )
    (tmp_path / "labels" / "001.txt").unlink()
    assert noted("add kpt_shape", read(tmp_path))
    file.write_text(yaml.safe_dump({"names": {0: "cat", 1: "dog"}, "kpt_shape": [1, 2]}))
    (tmp_path / "labels" / "000.txt").write_text("1 0.5 0.5 0.25 0.5 0.4 0.6\n")
    assert objects(read(tmp_path)) == [("dog", [24, 12, 16, 24])]


@pytest.mark.parametrize("line", ["0 30 10 12 9", "0 0.5 0.5 0.1", "cat 0.5 0.5 0.1 0.1"])
def test_lines_that_are_not_yolo(tmp_path, line):
    folders.write_yolo(tmp_path)
    label = tmp_path / "labels" / "003.txt"
    label.write_text(line)
    assert noted(f"1 of 23 objects, the first {label}, line 1: ", read(tmp_path))
    label.write_text(f"{line}\n" * 3)
    refuses(r"003\.txt, line 1.*3 of 25 objects", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "path: ../datasets/dogs\ntrain: images/a\nval: [images/b]\ntest: images/c",
        "train: ../images/a\nvalid: images\\b\ntest:",
        "path: /content/dogs\ntrain: images/a\nval: /content/dogs/images/b",
        "train: train.txt\nval: val.txt",
    ],
)
def test_the_splits_of_data_yaml(tmp_path, content):
    """As folders or lists, from here, from `path` or from another machine."""
    file = folders.write_yolo(tmp_path)
    for index, image in enumerate(sorted((tmp_path / "images").glob("*.jpg"))):
        for path in (image, tmp_path / "labels" / f"{image.stem}.txt"):
            (path.parent / "ab"[index > 7]).mkdir(exist_ok=True)
            path.rename(path.parent / "ab"[index > 7] / path.name)
    for name, numbers in {"train": range(8), "val": range(8, 12)}.items():
        lines = [f"./images/{'ab'[number > 7]}/{number:03d}.jpg" for number in numbers]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    file.write_text(f"{content}\nnc: 3\nnames: [no, 1.0, newt]")
    dataset = read(tmp_path)
    assert [len(dataset.split(name)) for name in ("train", "val")] == [8, 4]
    assert {sample.path[:9] for sample in dataset.split("val")} == {"images/b/"}
    assert dataset.classes == ["no", "1.0", "newt"], "what YAML would read as False and a number"
    assert "splits: stated in data.yaml" in dataset.facts
    file.write_text(
        content.replace("images/b", "images/d").replace("images\\b", "d").replace("val.txt", "d") + "\nnames: [a, b, c]"
    )
    refuses(r"data\.yaml: val.*: '.*d' is neither", tmp_path)


def test_a_yolo_split_that_does_not_split(tmp_path):
    file = folders.write_yolo(tmp_path)
    file.write_text("train: images\nval: images\nnames: {'0': cat, '1': dog, '2': newt}")
    dataset = prepare_data(tmp_path)
    assert [len(dataset.split(name)) for name in ("train", "val")] == [9, 3]
    assert "data.yaml states the same images for train and val" in dataset.facts
    file.write_text("nc: 4\nnames: [cat, dog, newt]")
    refuses(r"states 4 classes, but names 3", tmp_path)


def test_yolo_without_data_yaml(tmp_path):
    """labelImg's files beside the images, with names in each folder; then CVAT's, with a list and a missing file of names."""
    file = folders.write_yolo(tmp_path)
    file.unlink()
    refuses(r"YOLO, but the names.*add classes\.txt", tmp_path)
    for image in (tmp_path / "images").glob("*.jpg"):
        day = tmp_path / ("day1" if image.stem < "006" else "day2")
        day.mkdir(exist_ok=True)
        (tmp_path / "labels" / f"{image.stem}.txt").rename(day / f"{image.stem}.txt")
        image.rename(day / image.name)
    (tmp_path / "day1" / "classes.txt").write_text("cat\ndog\nnewt")
    (tmp_path / "day2" / "classes.txt").write_text("newt\ncat\ndog")
    dataset = read(tmp_path)
    assert [dataset.classes[sample.objects[0]["category_id"]] for sample in dataset.samples] == [
        *["cat", "dog", "newt"] * 2, *["newt", "cat", "dog"] * 2,
    ]  # fmt: skip
    (tmp_path / "day2" / "classes.txt").unlink()
    (tmp_path / "day1" / "classes.txt").rename(tmp_path / "obj.names")
    for day, split in (("day1", "obj_train_data"), ("day2", "obj_valid_data")):
        (tmp_path / day).rename(tmp_path / split)
    assert [len(read(tmp_path).split(name)) for name in ("train", "val")] == [6, 6]
    (tmp_path / "obj.data").write_text("classes = 3\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/")
    (tmp_path / "train.txt").write_text("\n".join(f"data/obj_train_data/{number:03d}.jpg" for number in range(5)))
    dataset = read(tmp_path)
    assert [len(dataset.split(name)) for name in ("train", "val")] == [5, 0]
    assert noted("7 images that are in no split", dataset)
    for name in ("lost", "lost2"):
        (tmp_path / "obj_train_data" / f"{name}.txt").write_text("0 0.5 0.5 0.1 0.1")
    refuses(r"lost\.txt: no image belongs.*2 of 14", tmp_path)


def test_labelme_shapes(tmp_path):
    """Shapes of a group are one object."""
    folders.write_images(tmp_path, 1)
    mask = b64encode(cv2.imencode(".png", np.ones((5, 9), np.uint8))[1]).decode()
    shapes = [
        dict(label="cat", shape_type="rectangle", points=[[30, 20], [10, 5]]),
        dict(label="cat", shape_type="polygon", points=[[0, 0], [8, 0], [0, 8]], group_id=1),
        dict(label="cat", shape_type="polygon", points=[[20, 20], [28, 20], [20, 28]], group_id=1),
        dict(label="dog", shape_type="polygon", points=[[30, 30], [40, 30], [30, 40]]),
        dict(label="dog", shape_type="rotation", points=[[40, 20], [50, 25], [48, 29], [38, 24]]),
        dict(label="__ignore__", shape_type="polygon", points=[[50, 30], [60, 30], [50, 40]]),
        dict(label="_background_", shape_type="polygon", points=[[50, 30], [60, 30], [50, 40]]),
        dict(label="dog", shape_type="circle", points=[[20, 30], [23, 34]]),
        dict(label="dog", shape_type="mask", points=[[4, 6], [12, 10]], mask=mask),
    ]
    (tmp_path / "000.json").write_text(json.dumps(dict(imagePath="..\\photos\\000.jpg", shapes=shapes)))
    dataset = read(tmp_path)
    boxes = [[30, 30, 10, 10], [38, 20, 12, 9], [50, 30, 10, 10], [15, 25, 10, 10], [4, 6, 8, 4]]
    assert [entry["bbox"] for entry in dataset.samples[0].objects] == [[10, 5, 20, 15], [0, 0, 28, 28], *boxes]
    assert dataset.classes == ["cat", "dog"]
    assert [entry["iscrowd"] for entry in dataset.samples[0].objects] == [0, 0, 0, 0, 1, 0, 0]
    assert [len(entry["segmentation"]) for entry in dataset.samples[0].objects] == [1, 2, 1, 1, 1, 1, 1]
    assert noted("1 of 7 objects have no outline", dataset)
    assert dataset.has_masks  # the rectangle is the outline of the box


def test_labelme_shapes_without_an_area_count_against_the_tenth(tmp_path):
    """They are named by kind, and their labels are not classes."""
    file, line = folders.write_labelme(tmp_path), dict(label="axis", shape_type="line", points=[[1, 1], [9, 9]])
    pixel = b64encode(cv2.imencode(".png", np.ones((1, 1), np.uint8))[1]).decode()
    with folders.edited(file) as content:
        content["shapes"] += [line, dict(label="axis", shape_type="mask", points=[[4, 6]] * 2, mask=pixel)]
    dataset = read(tmp_path)
    assert noted("1 of 26 objects, .* a line has no area", dataset)
    assert noted("1 of 26 objects, .* no outline of three or more points", dataset)
    assert dataset.classes == folders.CLASSES
    with folders.edited(file) as content:
        content["shapes"] += [line] * 2
    refuses(r"a line has no area.*4 of 28 objects cannot be used, 3 of them", tmp_path)


def test_a_tenth_of_the_objects_may_be_bad(tmp_path):
    file = folders.write_coco(tmp_path)
    for number in range(3):
        with folders.edited(file) as content:
            content["annotations"][number]["bbox"][2] = 0
        if number < 2:
            dataset = read(tmp_path)
            assert sum(len(sample.objects) for sample in dataset.samples) == 23 - number
            assert f"{number + 1} of 24 objects" in dataset.notes[-1]
    refuses(r"annotations\.json, object 1.*3 of 24 objects", tmp_path)


@pytest.mark.parametrize("attributes", [{}, dict(attributes={})])
def test_crowds_that_are_cvats_brush_masks(tmp_path, attributes):
    """All run lengths are crowds, and nothing else is annotated, or CVAT's attributes show where they come from."""
    file = folders.write_coco(tmp_path)
    with folders.edited(file) as content:
        for entry in content["annotations"]:
            left, top, width, height = map(int, entry["bbox"])
            area = np.zeros(folders.SIZE[::-1], np.uint8, order="F")
            area[top : top + height, left : left + width] = 1
            mask = coco_mask.encode(area)
            entry |= attributes | dict(iscrowd=1, segmentation=mask | dict(counts=mask["counts"].decode()))
    dataset = prepare_data(tmp_path)
    assert sum(dataset.count("train").values()) == 18
    assert noted("as CVAT's brush masks", dataset)
    with folders.edited(file) as content:
        content["annotations"][0] |= dict(iscrowd=0, segmentation=[[4, 5, 24, 5, 24, 22, 4, 22]])
    if attributes:
        assert sum(read(tmp_path).count("").values()) == 24
    else:
        refuses(r"no image of (train|val) has an object that counts", tmp_path, by=prepare_data)
    with folders.edited(file) as content:
        content["annotations"][0]["iscrowd"] = 1
    refuses("all 24 are crowds", tmp_path)


COCO_TYPES = {
    "numbers as text": lambda entry: entry.update(bbox=[f"{side}" for side in entry["bbox"]], area="", iscrowd="0"),
    "ids as text, null and no area": lambda entry: entry.update(
        image_id=f"{entry['image_id']}", iscrowd=None, area=None
    ),
    "ids": lambda entry: entry.update(id=7, category_id=str(entry["category_id"])),
    "no outline": lambda entry: entry.update(segmentation=None),
}


@pytest.mark.parametrize("change", COCO_TYPES.values(), ids=COCO_TYPES)
def test_coco_by_scripts(tmp_path, change):
    file = folders.write_coco(tmp_path)
    right = read(tmp_path)
    with folders.edited(file) as content:
        for entry in content["annotations"]:
            change(entry)
        content["images"][0] |= dict(width="64", height=48.0)
        del content["images"][1]["width"]
    assert [sample.objects for sample in read(tmp_path).samples] == [sample.objects for sample in right.samples]


def test_coco_files_without_a_split_in_their_names(tmp_path):
    for name in ("fold1", "holdout"):
        with folders.edited(folders.write_coco(tmp_path, number=6)) as content:
            for image in content["images"]:
                (tmp_path / image["file_name"]).rename(tmp_path / f"{name}_{image['file_name']}")
                image["file_name"] = f"{name}_{image['file_name']}"
        (tmp_path / "annotations.json").rename(tmp_path / f"{name}.json")
    assert noted("fold1.json, holdout.json are taken together", read(tmp_path))
    (tmp_path / "fold1.json").rename(tmp_path / "train.json")
    refuses(r"holdout\.json has none of the words train", tmp_path)


def test_an_image_is_annotated_once(tmp_path):
    file = folders.write_coco(tmp_path)
    shutil.copy(file, tmp_path / "copy.json")
    refuses(r"000\.jpg is annotated twice", tmp_path)


@pytest.mark.parametrize(
    ("image", "seg_map"),
    [
        ("train/a.jpg", "train_masks/a.png"),
        ("train/images/a.jpg", "train/labels/a.png"),
        ("JPEGImages/a.jpg", "SegmentationClass/a.png"),
        ("leftImg8bit/train/x_leftImg8bit.png", "gtFine/train/x_gtFine_labelTrainIds.png"),
        ("a.jpg", "a_mask.png"),
    ],
)
def test_pairs_of_images_and_class_maps(tmp_path, image, seg_map):
    for path in (image, seg_map, seg_map.replace("labelTrainIds", "labelIds")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(tmp_path / path), np.eye(8, dtype=np.uint8))
    assert [(sample.path, sample.seg_map) for sample in read(tmp_path).samples] == [(image, seg_map)]


MAPS = [  # values, classes.txt, labels of the values, names or the error
    ([0, 1, 2], "", None, ["class 0", "class 1", "class 2"]),
    ([0, 1, 2, 255], "cat\ndog\nnewt", None, folders.CLASSES),
    ([0, 1, 2], "cat\ndog", None, r"0 \(33.*, but classes\.txt names 2 classes .*--ignore 0"),
    ([0, 255], "", {0: 0, 255: 1}, ["background", "object"]),
    ([0, 1, 255], "", None, ["class 0", "class 1"]),
    ([0, 127, 255], "", {0: 0, 127: 1, 255: 2}, ["value 0", "value 127", "value 255"]),
    ([0, 85, 170, 255], "a\nb\nc\nd", {0: 0, 85: 1, 170: 2, 255: 3}, ["a", "b", "c", "d"]),
    ([0, 127, 255], "0 ground\n127: cat\n255: void", {0: 0, 127: 1, 255: 255}, ["ground", "cat"]),
    ([0, 127, 200, 255], "0 ground\n127 cat", None, r"does not name \[200"),
    ([0, 7, 300], "", {0: 0, 7: 1, 300: 2}, ["value 0", "value 7", "value 300"]),
    ([1, 2, 3], "cat\ndog\nnewt", {1: 0, 2: 1, 3: 2}, folders.CLASSES),
    ([1, 2, 255, 255, 255], "", {1: 0, 2: 1, 255: 2}, ["value 1", "value 2", "value 255"]),
    ([0, 1], "_background_\ncat", None, ["background", "cat"]),
    ([*[0, 255] * 1000, 128], "", None, "soft edges"),
    ([*range(256)], "", None, "soft edges"),
    ([7], "", None, "two classes"),
]


@pytest.mark.parametrize(("values", "names", "labels", "classes"), MAPS)
def test_the_classes_of_class_maps_are_the_values_that_occur(tmp_path, values, names, labels, classes):
    kind = np.uint16 if max(values) > 255 else np.uint8
    cv2.imwrite(str(folders.write_maps(tmp_path, 1)), np.resize(values, folders.SIZE[::-1]).astype(kind))
    if names:
        (tmp_path / "classes.txt").write_text(names)
    if isinstance(classes, str):
        refuses(classes, tmp_path)
    else:
        dataset = read(tmp_path)
        assert (dataset.values, dataset.classes) == (labels, classes)
        if labels and not names:
            assert noted(f"{values[1]} -> {classes[1]}", dataset)


def test_255_in_some_masks_is_a_class_where_it_is_1_in_others(tmp_path):
    folders.write_maps(tmp_path, 4)
    for number, file in enumerate(sorted((tmp_path / "masks").glob("*.png"))):
        cv2.imwrite(str(file), np.eye(48, 64, dtype=np.uint8) * (255 if number % 2 else 1))
    assert read(tmp_path).classes == ["value 0", "value 1", "value 255"]


def test_values_of_class_maps_are_ignored_by_name_or_by_option(tmp_path):
    folders.write_maps(tmp_path)
    dataset = read(tmp_path, ignore=(0,))
    assert (dataset.classes, dataset.values) == (["value 1", "value 2"], {0: 255, 1: 0, 2: 1, 255: 255})
    (note,) = [note for note in dataset.notes if "not annotated" in note]
    assert "0 (" in note
    assert "255 (4.2%)" in note
    assert (dataset.samples[0].path, dataset.samples[0].seg_map) == ("images/000.jpg", "masks/000.png")


STORED = {  # how a map of 0 and 1 may be stored
    "png": lambda values: Image.fromarray(np.dstack([values] * 3)),
    "bmp": lambda values: Image.fromarray(values > 0),
    "tif": lambda values: Image.fromarray(np.float32(values)),
    "npy": lambda values: np.where(values, -1, np.arange(64) % 2),  # LabelMe's -1 does not count
}


@pytest.mark.parametrize("suffix", STORED)
def test_class_maps_are_written_as_the_training_reads_them(tmp_path, suffix):
    file, values = folders.write_maps(tmp_path, 2), np.eye(48, 64, dtype=np.uint8)
    for path in (file, file.with_stem("001")):
        path.unlink()
        stored, target = STORED[suffix](values), path.with_suffix(f".{suffix}")
        np.save(target, stored) if suffix == "npy" else stored.save(target)
    write_data(prepare_data(tmp_path), tmp_path / "out")
    with Image.open((tmp_path / "out" / "train.txt").read_text().split("\t")[1]) as picture:
        found = np.asarray(picture)
    expected = np.where(values, 255, np.arange(64) % 2) if suffix == "npy" else values
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.uint8


@pytest.mark.parametrize(("suffix", "match"), [("png", "colour picture"), ("jpg", r"JPEG.*PNG"), ("tif", "fractions")])
def test_class_maps_without_class_numbers(tmp_path, suffix, match):
    file, values = folders.write_maps(tmp_path, 1), np.eye(48, 64, dtype=np.uint8)
    file.unlink()
    stored = {"png": np.dstack([values, values, 0 * values]), "jpg": values, "tif": np.float32(values) / 2}[suffix]
    Image.fromarray(stored).save(file.with_suffix(f".{suffix}"))
    refuses(match, tmp_path)


def test_class_folders(tmp_path):
    folders.write_classes(tmp_path / "flat")
    flat = read(tmp_path / "flat")
    assert flat.classes == folders.CLASSES
    assert {sample.split for sample in flat.samples} == {""}
    for split in ("seg_train/seg_train", "val_set"):
        folders.write_classes(tmp_path / "split" / "data" / split, 2)
    dataset = read(tmp_path / "split")
    assert dataset.classes == folders.CLASSES
    assert [len(dataset.split(split)) for split in ("train", "val")] == [6, 6]
    shutil.copy(tmp_path / "flat" / "cat" / "cat_000.jpg", tmp_path / "split" / "data")
    assert noted("1 of 13 images.*in no folder of a class", read(tmp_path / "split"))
    shutil.rmtree(tmp_path / "split" / "data" / "seg_train" / "seg_train" / "dog")
    (tmp_path / "split" / "data" / "cat_000.jpg").unlink()
    refuses(r"'dog' has no images in train", tmp_path / "split")


def write_pairs(images, folder):
    """Other images with the names of a folder's."""
    for image, other in zip(sorted(images.iterdir()), folders.write_images(folder, 6, seed=9), strict=True):
        (folder / other).rename(folder / image.name)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (lambda root: (root / "labels.csv").touch(), r"labels\.csv"),
        (lambda root: (root / "dog").rename(root / "masks"), "masks"),
        (lambda root: (root / "dog").rename(root / "freight-train"), "freight-train"),
        (lambda root: write_pairs(root / "dog", root / "Ground Truth"), "Ground Truth|dog"),
        (lambda root: (root / "dog").rename(root / "cat" / "siamese"), "folder of a folder"),
    ],
)
def test_folders_that_may_not_be_classes_need_the_task(tmp_path, change, doubt):
    folders.write_classes(tmp_path)
    change(tmp_path)
    refuses(f"--task classification.*({doubt})", tmp_path)
    assert read(tmp_path, "classification").task == "classification"


def test_an_xml_file_names_its_image_by_its_own_name(tmp_path):
    """If the image that it states is missing. Polygons are outlines; objects of other forms are named."""
    (tmp_path / "Annotations").mkdir()
    box = "<bndbox><xmin>5</xmin><ymin>6</ymin><xmax>24.0</xmax><ymax>22</ymax></bndbox>"
    outline = "<polygon><x1>5</x1><y1>6</y1><x2>24</x2><y2>6</y2><x3>24</x3><y3>22</y3></polygon>"
    for number, name in enumerate(folders.write_images(tmp_path / "JPEGImages")):
        size = "<size><width>64.0</width><height>48</height></size>"
        stated = ("IMG.jpg", f"{number:03d}", name)[number % 3]
        body = f"<filename>{stated}</filename>{size}<object><name> cat </name>{box}{outline}</object>"
        (tmp_path / "Annotations" / name).with_suffix(".xml").write_text(f"<annotation>{body}</annotation>")
    dataset = read(tmp_path)
    assert objects(dataset) == [("cat", [4, 5, 20, 17])]
    assert dataset.samples[0].objects[0]["segmentation"] == [[4, 5, 23, 5, 23, 21]]
    assert noted("4 images lie in other places than stated, the first: IMG.jpg -> JPEGImages/000.jpg", dataset)
    file = tmp_path / "Annotations" / "003.xml"
    file.write_text(file.read_text().replace("bndbox", "robndbox"))
    assert noted("1 of 12 objects.*robndbox", read(tmp_path))


def test_labelmes_flags_are_classes(tmp_path):
    folders.write_labelme(tmp_path)
    for number, file in enumerate(sorted(tmp_path.glob("*.json"))):
        flags = {name: index == number % 2 for index, name in enumerate(["cat", "dog", "__ignore__"])}
        with folders.edited(file) as content:
            content["flags"] = flags
    assert read(tmp_path).task == "detection"
    dataset = read(tmp_path, "classification")
    assert (dataset.classes, [sample.label for sample in dataset.samples]) == (["cat", "dog"], [0, 1] * 6)
    for number, flags in ((1, {}), (2, dict(cat=True, dog=True))):
        with folders.edited(tmp_path / f"00{number}.json") as content:
            content["flags"] = flags
        if number == 1:
            assert noted("1 of 12 images", read(tmp_path, "classification"))
    refuses(r"set the one that is the class.*2 of 12", tmp_path, "classification")


def test_images_inside_of_labelmes_files(tmp_path):
    """They serve where there is no other; the image beside the file comes first."""
    folders.write_labelme(tmp_path, 3)
    for file in tmp_path.glob("*.json"):
        with folders.edited(file) as content:
            content["imagePath"], image = file.name, file.with_suffix(".jpg")
            if file.stem != "001":
                content["imageData"] = b64encode(image.read_bytes()).decode()
                image.unlink()
    dataset = prepare_data(tmp_path)
    assert sorted(sample.path for sample in dataset.samples) == ["000.json", "001.jpg", "002.json"]
    write_data(dataset, tmp_path / "out")
    for split in ("train", "val"):
        for image in json.loads((tmp_path / "out" / f"{split}.json").read_text())["images"]:
            assert Image.open(tmp_path / image["file_name"]).size == folders.SIZE


def as_corners(x, y, w, h):
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def as_top_left(x, y, w, h):
    return x - w / 2, y - h / 2, w, h


def as_part_of_a_box(x, y, w, h):
    """A box of an object that the lower side of the image cuts."""
    return x, 0.9, w, 0.3


@pytest.mark.parametrize(
    ("change", "named"), [(as_corners, "x1 y1 x2 y2"), (as_top_left, "left top width height"), (as_part_of_a_box, "")]
)
def test_yolo_boxes_in_another_format(tmp_path, change, named):
    """They are refused if they fit as something else; boxes that only leave the image are cut."""
    folders.write_yolo(tmp_path)
    for file in (tmp_path / "labels").iterdir():
        lines = [[float(word) for word in line.split()] for line in file.read_text().splitlines()]
        lines = [(int(label), *change(*(min(number, 1) for number in box))) for label, *box in lines]
        file.write_text("\n".join(" ".join(map(str, line)) for line in lines))
    if named:
        refuses(f"boxes reach outside their image; they fit as {named}", tmp_path)
    else:
        assert noted("24 of 24 boxes reach outside their image and are cut", read(tmp_path))


def test_label_files_that_are_missing_are_named(tmp_path):
    folders.write_yolo(tmp_path)
    (tmp_path / "labels" / "003.txt").unlink()
    (tmp_path / "labels" / "004.txt").write_text("")
    assert noted(r"1 images have no label file, the first .*images/003\.jpg", read(tmp_path))


def write_values(root, *values):
    """Class maps of a row for each value."""
    folders.write_maps(root, len(values))
    for file, each in zip(sorted((root / "masks").iterdir()), values, strict=True):
        rows = np.resize(np.repeat(np.uint8(each), 3), folders.SIZE[1])
        Image.fromarray(np.repeat(rows[:, None], folders.SIZE[0], 1)).save(file)


@pytest.mark.parametrize(
    ("values", "names", "doubt"),
    [
        ([[0, 1], [0, 1, 2, 3], [0, 1, 2]], "", "if they count objects"),
        ([[0, 1], [0, 1, 2, 3], [0, 1, 2]], "a\nb\nc\nd", None),
        ([[0, 2], [0, 1, 2, 3], [0, 1, 2]], "", None),
        ([[0, 255, 255], [255]], "", "are the maps inverted"),
        ([[1, 1, 1, 0], [1]], "", "are the maps inverted"),
        ([[0, 0, 255], [0]], "", None),
    ],
)
def test_doubts_about_class_maps_without_names(tmp_path, values, names, doubt):
    write_values(tmp_path, *values)
    if names:
        (tmp_path / "classes.txt").write_text(names)
    assert noted(doubt or "^warning", read(tmp_path)) == bool(doubt)


def test_an_image_in_two_folders_of_classes(tmp_path):
    folders.write_classes(tmp_path, 12)
    shutil.copy(tmp_path / "cat" / "cat_000.jpg", tmp_path / "dog")
    dataset = read(tmp_path)
    assert len(dataset.samples) == 35
    assert noted(r"2 of 37 images, the first .*cat_000\.jpg: the same image has another class", dataset)
    for number in (1, 2, 3):
        shutil.copy(tmp_path / "cat" / f"cat_00{number}.jpg", tmp_path / "dog")
    refuses(r"8 of 40 images cannot be used", tmp_path)
