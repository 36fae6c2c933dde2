"""Where the images of annotations lie, lists of them, and the splits of names."""

import json
from pathlib import PurePosixPath

import pytest

from mmlisa.data.folder import Folder, layout_of, split_of


def make(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return Folder(root)


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
        ("Annotations/x/1.xml", "JPEGImages/x/a.jpg", "a.jpg"),
        ("labels.json", "a.jpg", "C:\\photos\\a.jpg"),
        ("labels.json", "far/away/a.jpg", "a.JPG"),
        ("labels.json", "far/away/a.jpg", "/home/me/away/a.jpg"),
    ],
)
def test_where_an_image_lies(tmp_path, file, image, stated):
    assert make(tmp_path, file, image).find([stated], file) == [image]


def test_the_folder_of_the_split_comes_first(tmp_path):
    folder = make(tmp_path, "images/0.jpg", "images/val/0.jpg")
    assert folder.find(["0.jpg"], "annotations/instances_val.json") == ["images/val/0.jpg"]
    assert folder.find(["0.jpg"], "annotations/instances_train.json") == ["images/0.jpg"]


def test_names_count_only_where_no_stated_folder_exists_and_they_are_unique(tmp_path):
    folder = make(tmp_path, "1.jpg", "site_b/2.jpg", "site_b/3.jpg", "site_c/3.jpg")
    assert folder.find(["site_a/1.jpg", "site_b/2.jpg"], "a.json") == [None, "site_b/2.jpg"]
    assert folder.moved == []
    assert folder.find(["x/1.jpg", "x/3.jpg", "x/site_c/3.jpg"], "a.json") == ["1.jpg", None, None]
    assert folder.find(["x/site_c/3.jpg"], "a.json") == ["site_c/3.jpg"]
    assert folder.moved == [("x/1.jpg", "1.jpg"), ("x/site_c/3.jpg", "site_c/3.jpg")]


def test_lists_of_a_split(tmp_path):
    folder = make(tmp_path, *[f"JPEGImages/{i}.jpg" for i in range(12)], "SegmentationClass/3.png")
    lists = {"ImageSets/Main/trainval.txt": range(12), "ImageSets/Main/val.txt": range(9, 12), "train.txt": [0]}
    lists |= {"ImageSets/Segmentation/train.txt": [3], "notes_of_val.txt": [4], "images/test.txt": [5]}
    for path, numbers in lists.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("".join(f"{number}  1\n" for number in numbers))
    folder = Folder(tmp_path)
    found = folder.listed_splits()
    assert [found[f"JPEGImages/{i}.jpg"] for i in (0, 3, 5, 10)] == ["train", "train", "test", "val"]
    assert folder.listed_splits("Segmentation")["JPEGImages/3.jpg"] == "train"
    (tmp_path / "train.txt").write_text("0.jpg\n1.jpg\n13.jpg")
    with pytest.raises(ValueError, match=r"train\.txt: its image '13\.jpg' is missing.*1 of 3 lines"):
        Folder(tmp_path).listed_splits()


@pytest.mark.parametrize(
    ("path", "with_name", "split"),
    [
        ("train/a.jpg", False, "train"),
        ("images/val2017/a.jpg", False, "val"),
        ("valid_masks/train.png", False, "val"),
        ("test/train/a.jpg", False, "train"),
        ("training_set/a.jpg", False, "train"),
        ("obj_valid_data/a.jpg", False, "val"),
        ("freight-train/a.jpg", False, ""),
        ("annotations/instances_train2017.json", True, "train"),
        ("helmets_train.json", True, "train"),
        ("test/_annotations.coco.json", True, "test"),
    ],
)
def test_split_of(path, with_name, split):
    assert split_of(path, with_name=with_name) == split


def test_layouts_of_an_image_and_of_its_annotation_agree():
    pairs = ("train/images", "train/labels"), ("JPEGImages/a", "Annotations/a"), ("train_images", "train_masks")
    for image, annotation in pairs:
        assert layout_of(PurePosixPath(image)) == layout_of(PurePosixPath(annotation))


def test_text_in_another_encoding_is_named(tmp_path):
    (tmp_path / "classes.txt").write_bytes("Hündin".encode("latin-1"))
    with pytest.raises(ValueError, match=r"classes\.txt is not text in UTF-8"):
        Folder(tmp_path).class_names()
    (tmp_path / "a.json").write_bytes(json.dumps({"names": ["Hündin"]}, ensure_ascii=False).encode("utf-16"))
    assert Folder(tmp_path).documents["a.json"] == {"names": ["Hündin"]}
