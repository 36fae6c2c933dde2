"""Readers of annotation formats: one test each, where images may lie, splits, and the error with the expected tree."""

import json
import shutil
from base64 import b64encode

import cv2
import numpy as np
import pytest
import yaml
from PIL import Image

from helpers import folders
from mmlisa.data.folder import read_size, split_of
from mmlisa.data.formats import read
from mmlisa.data.splitting import prepare_data
from mmlisa.datasets.demo import make_demo
from mmlisa.datasets.demo_objects import CLASSES


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
    make_demo(tmp_path / "demo", num_images={"train": 3, "val": 2}, progress=False)
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
    make_demo(tmp_path / "demo", num_images={"train": 3, "val": 2}, progress=False)
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
    file.write_text(yaml.safe_dump({"names": {0: "cat", 1: "dog"}, "kpt_shape": [1, 2]}))
    (tmp_path / "labels" / "000.txt").write_text("1 0.5 0.5 0.25 0.5 0.4 0.6\n")
    assert objects(read(tmp_path)) == [("dog", [24, 12, 16, 24])]


@pytest.mark.parametrize("line", ["0 30 10 12 9", "0 0.5 0.5 0.1", "cat 0.5 0.5 0.1 0.1"])
def test_lines_that_are_not_yolo(tmp_path, line):
    folders.write_yolo(tmp_path)
    (tmp_path / "labels" / "003.txt").write_text(line)
    with pytest.raises(ValueError, match=r"003\.txt, line 1"):
        read(tmp_path)


@pytest.mark.parametrize(("split", "counts"), [("test", (9, 2, 1)), ("train", (1, 0, 0))])
def test_images_in_no_split_are_trained_on_if_there_is_only_a_test(tmp_path, split, counts):
    folders.write_yolo(tmp_path)
    for path in ("images/011.jpg", "labels/011.txt"):
        (tmp_path / path).parent.joinpath(split).mkdir()
        (tmp_path / path).rename(tmp_path / path.replace("/", f"/{split}/"))
    dataset = read(tmp_path)
    assert any("all 11 such images" in note for note in dataset.notes) == (split == "train")
    if split == "test":
        dataset = prepare_data(tmp_path)
    assert tuple(len(dataset.split(name)) for name in ("train", "val", "test")) == counts


def test_labelme_shapes(tmp_path):
    """Shapes of a group are one object; other shapes, such as points, are left out."""
    folders.write_images(tmp_path, 1)
    mask = b64encode(cv2.imencode(".png", np.ones((5, 9), np.uint8))[1]).decode()
    shapes = [
        dict(label="cat", shape_type="rectangle", points=[[30, 20], [10, 5]]),
        dict(label="cat", shape_type="polygon", points=[[0, 0], [8, 0], [0, 8]], group_id=1),
        dict(label="cat", shape_type="polygon", points=[[20, 20], [28, 20], [20, 28]], group_id=1),
        dict(label="dog", shape_type="polygon", points=[[30, 30], [40, 30], [30, 40]]),
        dict(label="dog", shape_type="point", points=[[3, 3]]),
        dict(label="dog", shape_type="circle", points=[[20, 30], [23, 34]]),
        dict(label="dog", shape_type="mask", points=[[4, 6], [12, 10]], mask=mask),
    ]
    (tmp_path / "000.json").write_text(json.dumps(dict(imagePath="..\\photos\\000.jpg", shapes=shapes)))
    dataset = read(tmp_path)
    dogs = [("dog", [30, 30, 10, 10]), ("dog", [15, 25, 10, 10]), ("dog", [4, 6, 8, 4])]
    assert objects(dataset) == [("cat", [10, 5, 20, 15]), ("cat", [0, 0, 28, 28]), *dogs]
    assert [len(entry["segmentation"]) for entry in dataset.samples[0].objects] == [1, 2, 1, 1, 1]
    assert dataset.has_masks  # the rectangle is the outline of the box


@pytest.mark.parametrize(
    ("file", "image", "stated"),
    [
        ("labels.json", "a.jpg", "a.jpg"),
        ("labels.json", "images/a.jpg", "a.jpg"),
        ("labels.json", "photos/a.jpg", "photos/a.jpg"),
        ("annotations/labels.json", "images/a.jpg", "a.jpg"),
        ("annotations/labels.json", "photos/a.jpg", "photos/a.jpg"),
        ("annotations/instances_val2017.json", "val2017/a.jpg", "a.jpg"),
        ("annotations/instances_val2017.json", "images/val2017/a.jpg", "a.jpg"),
        ("train/_annotations.coco.json", "train/a.jpg", "a.jpg"),
        ("labels.json", "a.jpg", "C:\\photos\\a.jpg"),
    ],
)
def test_where_an_image_lies(tmp_path, file, image, stated):
    content = json.loads(folders.write_coco(tmp_path / "source", number=1).read_text())
    content["images"][0]["file_name"] = stated
    for path in (file, image):
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "data" / file).write_text(json.dumps(content))
    shutil.copy(tmp_path / "source" / "000.jpg", tmp_path / "data" / image)
    assert [sample.path for sample in read(tmp_path / "data").samples] == [image]


def test_an_unknown_layout_is_one_error_with_the_expected_tree(tmp_path):
    tree = r"(?s)Expected one of:.*instances_train\.json.*data\.yaml.*JPEGImages.*masks.*<class>"
    folders.write_images(tmp_path, 3)
    with pytest.raises(ValueError, match=tree):
        read(tmp_path)
    file = folders.write_coco(tmp_path, number=3)
    with pytest.raises(ValueError, match=tree):
        read(tmp_path, "classification")
    (tmp_path / "far" / "away").mkdir(parents=True)
    for image in tmp_path.glob("*.jpg"):
        image.rename(tmp_path / "far" / "away" / image.name)
    with pytest.raises(ValueError, match=r"'000\.jpg' is missing.*into images/"):
        read(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere")


def test_two_formats_are_refused(tmp_path):
    folders.write_coco(tmp_path)
    folders.write_labelme(tmp_path)
    with pytest.raises(ValueError, match=r"several formats.*000\.json"):
        read(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json"):
        read(tmp_path)


def test_a_tenth_of_the_objects_may_be_bad(tmp_path):
    file = folders.write_coco(tmp_path)
    content = json.loads(file.read_text())
    for number, entry in enumerate(content["annotations"][:3]):
        entry["bbox"][2] = 0
        file.write_text(json.dumps(content))
        if number < 2:
            dataset = read(tmp_path)
            assert sum(len(sample.objects) for sample in dataset.samples) == 23 - number
            assert f"{number + 1} of 24 objects" in dataset.notes[-1]
    with pytest.raises(ValueError, match=r"annotations\.json, object 1.*3 of 24 objects"):
        read(tmp_path)


def test_an_image_is_annotated_once(tmp_path):
    file = folders.write_coco(tmp_path)
    shutil.copy(file, tmp_path / "copy.json")
    with pytest.raises(ValueError, match=r"000\.jpg is annotated twice"):
        read(tmp_path)


def test_class_maps(tmp_path):
    folders.write_maps(tmp_path)
    dataset = read(tmp_path)
    assert (dataset.samples[0].path, dataset.samples[0].seg_map) == ("images/000.jpg", "masks/000.png")
    assert dataset.classes == ["class 0", "class 1", "class 2"]
    (tmp_path / "classes.txt").write_text("cat\ndog\nnewt\n")
    assert read(tmp_path).classes == folders.CLASSES
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match=r"class 2, but classes\.txt names 2"):
        read(tmp_path)


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
        cv2.imwrite(str(tmp_path / path), np.ones((8, 8), np.uint8))
    assert [(sample.path, sample.seg_map) for sample in read(tmp_path).samples] == [(image, seg_map)]


@pytest.mark.parametrize(
    ("values", "channels", "found"),
    [
        ([0, 255], (), {255: 1}),
        ([0, 1, 255], (), {}),
        ([0, 100, 200, 255], (), "soft edges"),
        ([0, 255, 300], (), "soft edges"),
        ([0, 255], (3,), "colour"),
    ],
)
def test_masks_of_255(tmp_path, values, channels, found):
    seg_map = np.resize(values, (*folders.SIZE[::-1], *channels)).astype(np.uint16 if max(values) > 255 else np.uint8)
    cv2.imwrite(str(folders.write_maps(tmp_path, 1)), seg_map)
    if isinstance(found, str):
        with pytest.raises(ValueError, match=found):
            read(tmp_path)
    else:
        dataset = read(tmp_path)
        assert (dataset.label_map, len(dataset.classes)) == (found, 2)


def test_class_folders(tmp_path):
    folders.write_classes(tmp_path / "flat")
    flat = read(tmp_path / "flat")
    assert flat.classes == folders.CLASSES
    assert {sample.split for sample in flat.samples} == {""}
    for split in ("train", "val"):
        folders.write_classes(tmp_path / "split" / split, 2)
    shutil.move(tmp_path / "split" / "train" / "dog", tmp_path / "split" / "train" / "train")  # a class of that name
    dataset = read(tmp_path / "split")
    assert dataset.classes == ["cat", "newt", "train"]
    assert [len(dataset.split(split)) for split in ("train", "val")] == [6, 4]
    assert "2 images outside" in dataset.notes[0]


def test_images_are_read_as_displayed_and_completely(tmp_path):
    """Phones store the orientation in EXIF, and OpenCV applies it."""
    folders.write_coco(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(tmp_path / "003.jpg") as image:
        image.save(tmp_path / "003.jpg", exif=exif)
    assert read_size(tmp_path / "003.jpg") == (48, 64) == cv2.imread(str(tmp_path / "003.jpg")).shape[1::-1]
    dataset = prepare_data(tmp_path)
    assert len(dataset.samples) == 11
    assert any("003.jpg" in note and "48x64" in note for note in dataset.notes)
    content = (tmp_path / "005.jpg").read_bytes()
    (tmp_path / "005.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="2 of 12 images"):
        prepare_data(tmp_path)


def test_images_have_no_largest_size(tmp_path):
    """Pillow's limit, 179 million pixels, is below orthophotos."""
    (tmp_path / "a.pbm").write_bytes(b"P4 20000 20000\n")
    assert read_size(tmp_path / "a.pbm") == (20000, 20000)


@pytest.mark.parametrize(
    ("path", "with_name", "split"),
    [
        ("train/a.jpg", False, "train"),
        ("images/val2017/a.jpg", False, "val"),
        ("valid_masks/train.png", False, "val"),
        ("test/train/a.jpg", False, "train"),
        ("freight-train/a.jpg", False, ""),
        ("annotations/instances_train2017.json", True, "train"),
        ("test/_annotations.coco.json", True, "test"),
    ],
)
def test_split_of(path, with_name, split):
    assert split_of(path, with_name=with_name) == split
