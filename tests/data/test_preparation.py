"""Recognition, a drawn validation, what is left out, and what is written."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from helpers import folders
from helpers.folders import noted, refuses
from mmlisa.data.dataset import Dataset, Sample, draw_maps
from mmlisa.data.preparation import prepare_data, read, split, write_data


def make(number):
    samples = [Sample(f"{index}.jpg", digest=bytes([index])) for index in range(number)]
    return Dataset(Path("data"), "classification", ["a", "b"], samples)


def test_every_class_is_on_both_sides_of_the_same_draw():
    datasets = make(100), make(100)
    for dataset in datasets:
        for index, sample in enumerate(dataset.samples):
            sample.label = index % 2
        split(dataset)
    assert datasets[0] == datasets[1]
    assert dataset.count("val") == {0: 10, 1: 10}


def test_copies_stay_on_one_side():
    dataset = make(30)
    for index, sample in enumerate(dataset.samples):
        if index < 10:
            sample.digest = b"equal files"
        elif index < 20:
            sample.path = f"cat_jpg.rf.{index:032x}.jpg"
    split(dataset)
    for copies in (dataset.samples[:10], dataset.samples[10:20]):
        assert len({sample.split for sample in copies}) == 1


def test_test_images_stay_and_one_image_cannot_be_split():
    dataset = make(10)
    dataset.samples[3].split = "test"
    split(dataset)
    assert [len(dataset.split(name)) for name in ("train", "val", "test")] == [7, 2, 1]
    with pytest.raises(ValueError, match="two different images"):
        split(make(1))


def test_images_of_two_splits_are_named(tmp_path):
    for name in ("train", "val"):
        folders.write_coco(tmp_path, name, 4)
    shutil.copy(tmp_path / "train" / "000.jpg", tmp_path / "val" / "001.jpg")
    (note,) = [note for note in prepare_data(tmp_path).notes if note.startswith("warning")]
    assert "001.jpg: 1 of the 4 images of val are in train" in note


@pytest.mark.parametrize(
    ("background", "empty", "kept"), [("auto", 3, 9), ("auto", 7, 3), ("on", 7, 10), ("off", 3, 6)]
)
def test_background_images(tmp_path, background, empty, kept):
    """Three or seven of the images of train have no objects."""
    folders.write_coco(tmp_path, "val", 2)
    with folders.edited(folders.write_coco(tmp_path, "train", 9 if empty == 3 else 10)) as content:
        content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] > empty]
    dataset = prepare_data(tmp_path, background=background)
    assert len(dataset.split("train")) == kept
    assert noted(f"^background: {empty} of", dataset)


def test_a_summary_that_can_be_checked(tmp_path):
    folders.write_yolo(tmp_path)
    (tmp_path / "images" / "photo.heic").touch()
    folders.write_maps(tmp_path / "maps", 1)
    dataset = prepare_data(tmp_path)
    lines = dataset.summary()
    assert lines[:5] == [
        "YOLO, boxes: data.yaml, 12 text files such as labels/000.txt",
        "splits: 9 images for training and 3 for validation, drawn with seed 0",
        "images: train 9, val 3; from 64x48 to 64x48 pixels; 0 without annotations",
        "objects per class in train/val: cat 6/2, dog 6/2, newt 6/2",
        "objects: from 10 to 18 pixels, the root of their area",
    ]
    assert noted(r"1 of 15 images.*photo\.heic", dataset)
    assert "not read, but found: class maps (1 maps such as maps/masks/000.png); --task chooses" in lines


def test_outlines_become_class_maps_and_boxes_do_not(tmp_path):
    folders.write_coco(tmp_path / "boxes")
    refuses("--task segmentation needs outlines", tmp_path / "boxes", "segmentation")
    shutil.rmtree(tmp_path / "boxes")
    with folders.edited(folders.write_labelme(tmp_path)) as content:
        content["shapes"].append(dict(label="__ignore__", points=[[50, 30], [64, 30], [64, 48], [50, 48]]))
    dataset = prepare_data(tmp_path, "segmentation")
    assert dataset.classes == ["background", *folders.CLASSES]
    write_data(dataset, tmp_path / "out")
    with Image.open(tmp_path / "out" / "maps" / "000.jpg.png") as picture:
        values = np.asarray(picture)
    assert [values[40, 60], values[8, 8], values[0, 0], values[12, 33]] == [255, 1, 0, 2]


def outlines(number):
    square = dict(segmentation=[[1, 1, 5, 1, 5, 5, 1, 5]], area=16, iscrowd=0, category_id=number - 1)
    sample = Sample("a.jpg", size=(8, 8), objects=[square])
    return Dataset(Path("data"), "detection", [f"class {index}" for index in range(number)], [sample], has_masks=True)


def test_class_maps_of_one_byte_hold_254_classes_beside_the_background():
    most = outlines(254)
    draw_maps(most)
    assert most.samples[0].counts[254] > 0
    with pytest.raises(ValueError, match="255 labels, but there are 256 classes"):
        draw_maps(outlines(255))


def test_class_maps_of_more_values_are_not_written(tmp_path):
    values = np.resize(np.arange(256, dtype=np.uint16), folders.SIZE[::-1])
    Image.fromarray(values).save(folders.write_maps(tmp_path, 1))
    (tmp_path / "classes.txt").write_text("\n".join(f"{index} class {index}" for index in range(256)))
    refuses("255 labels, but there are 256 classes", tmp_path, "segmentation")


def test_images_that_the_training_cannot_use_are_left_out(tmp_path):
    """One is turned by EXIF, as OpenCV applies it, but not its annotations; the other is cut off."""
    folders.write_coco(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(tmp_path / "003.jpg") as image:
        image.save(tmp_path / "003.jpg", exif=exif)
    dataset = read(tmp_path)
    assert len(dataset.samples) == 11
    assert noted(r"003\.jpg.*48x64", dataset)
    (tmp_path / "005.jpg").write_bytes((tmp_path / "005.jpg").read_bytes()[:600])
    refuses("2 of 12 images", tmp_path)


def test_an_unknown_layout_is_one_error_with_the_expected_tree(tmp_path):
    tree = r"(?s)Expected one of:.*instances_train\.json.*data\.yaml.*JPEGImages.*masks.*<class>"
    folders.write_images(tmp_path, 3)
    refuses(tree, tmp_path)
    folders.write_coco(tmp_path, number=3)
    refuses(tree, tmp_path, "classification")
    folders.write_labelme(tmp_path / "more")
    refuses(r"several formats.*000\.json", tmp_path)
    shutil.rmtree(tmp_path / "more")
    for image in tmp_path.glob("*.jpg"):
        image.rename(image.with_suffix(".png"))
    refuses(r"'000\.jpg' is missing.*into images/", tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize(("stated", "by", "counts"), [("test", prepare_data, [9, 2, 1]), ("train", read, [1, 0, 0])])
def test_images_in_no_split_are_trained_on_if_there_is_only_a_test(tmp_path, stated, by, counts):
    folders.write_yolo(tmp_path)
    for path in ("images/011.jpg", "labels/011.txt"):
        (tmp_path / path).parent.joinpath(stated).mkdir()
        (tmp_path / path).rename(tmp_path / path.replace("/", f"/{stated}/"))
    dataset = by(tmp_path)
    assert noted("11 images that are in no split", dataset) == (stated == "train")
    assert [len(dataset.split(name)) for name in ("train", "val", "test")] == counts


def test_a_tenth_of_the_files_may_be_broken(tmp_path):
    folders.write_labelme(tmp_path)
    (tmp_path / "000.json").write_text("{")
    assert noted("1 of 12 JSON, XML and YAML files", read(tmp_path))
    (tmp_path / "001.json").write_text("")
    refuses(r"000\.json: it cannot be read.*2 of 12", tmp_path)


def test_copies_in_the_validation_are_named(tmp_path):
    """Also those that were saved again."""
    folders.write_coco(tmp_path, "train")
    folders.write_coco(tmp_path, "val")
    assert not noted("in train, too", prepare_data(tmp_path))
    for name in ("000.jpg", "004.jpg"):
        with Image.open(tmp_path / "train" / name) as image:
            image.save(tmp_path / "val" / name, quality=60)
    assert noted(r"val/000\.jpg: 2 of the 12 images of val are in train", prepare_data(tmp_path))


def test_frames_of_one_video_on_both_sides_are_named(tmp_path):
    folders.write_yolo(tmp_path, 20)
    first, last = (cv2.imread(str(tmp_path / "images" / name)).astype(float) for name in ("000.jpg", "001.jpg"))
    for number in range(20):
        frame = first + (last - first) * number / 19
        cv2.imwrite(str(tmp_path / "images" / f"{number:03d}.jpg"), frame)
    assert noted(r"frames of one video.*images/\d+\.jpg in (train|val) and images/", prepare_data(tmp_path))
