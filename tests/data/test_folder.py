"""Where the images of annotations lie, lists of them, the splits of names, and images as the training reads them."""

import json

import cv2
import numpy as np
import pytest
from mmcv.transforms import LoadImageFromFile
from PIL import Image

from mmlisa.data.folder import TURNED, Folder, examine_image, split_of

PICTURE = cv2.resize(np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8), (64, 48))


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
        ("labels.json", "face_mask/a.jpg", "a.jpg"),
        ("labels.json", "far/away/a.jpg", "/home/me/away/a.jpg"),
    ],
)
def test_where_an_image_lies(tmp_path, file, image, stated):
    assert make(tmp_path, file, image).find([stated], file) == [image]


def test_the_folder_of_the_split_comes_first(tmp_path):
    folder = make(tmp_path, "images/0.jpg", "images/val/0.jpg")
    assert folder.find(["0.jpg"], "annotations/instances_val.json") == ["images/val/0.jpg"]
    assert folder.find(["0.jpg"], "annotations/instances_train.json") == ["images/0.jpg"]
    folder = make(tmp_path, "images/1.png", "annotations/1.png")  # a class map
    assert folder.find(["1.png"], "annotations/a.json") == ["images/1.png"]


def test_names_count_only_where_no_stated_folder_exists_and_they_are_unique(tmp_path):
    folder = make(tmp_path, "1.jpg", "site_b/2.jpg", "site_b/3.jpg", "site_c/3.jpg")
    assert folder.find(["site_a/1.jpg", "site_b/2.jpg"], "a.json") == [None, "site_b/2.jpg"]
    assert folder.moved == []
    assert folder.find(["x/1.jpg", "x/3.jpg", "x/site_c/3.jpg"], "a.json") == ["1.jpg", None, None]
    assert folder.find(["x/site_c/3.jpg"], "a.json") == ["site_c/3.jpg"]
    assert folder.moved == [("x/1.jpg", "1.jpg"), ("x/site_c/3.jpg", "site_c/3.jpg")]


@pytest.mark.parametrize(
    ("file", "image", "other"),
    [
        ("labels/a.txt", "images/a.jpg", "masks/a.png"),
        ("labels/a.txt", "images/a.jpg", "labels/a.png"),  # an overlay
        ("ann/labels/a.txt", "ann/images/a.jpg", "ann/a/a.jpg"),
        ("labels/a.txt", "labels/a.jpg", "masks/a.jpg"),
        ("train_labels/a.txt", "train_masks/a.jpg", "a.jpg"),  # people with masks
        ("train_labels/a.txt", "train_images/a.jpg", "train_masks/a.png"),
    ],
)
def test_the_image_of_an_annotation_is_no_mask_if_there_is_another(tmp_path, file, image, other):
    assert make(tmp_path, image, other).find_twins(file) == [image]


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


def test_text_in_another_encoding_is_named(tmp_path):
    (tmp_path / "classes.txt").write_bytes("Hündin".encode("latin-1"))
    with pytest.raises(ValueError, match=r"classes\.txt is not text in UTF-8"):
        Folder(tmp_path).class_names()
    (tmp_path / "a.json").write_bytes(json.dumps({"names": ["Hündin"]}, ensure_ascii=False).encode("utf-16"))
    assert Folder(tmp_path).documents["a.json"] == {"names": ["Hündin"]}


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_orientation(tmp_path, suffix, orientation):
    """EXIF's orientation counts where OpenCV follows it; elsewhere, annotations would not fit."""
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[0x0112] = orientation
    options = dict(tiffinfo={0x0112: orientation}) if suffix == "tif" else dict(exif=exif)
    Image.fromarray(PICTURE).save(path, **options)
    height, width = LoadImageFromFile()(dict(img_path=str(path)))["img"].shape[:2]
    if suffix == "webp" and orientation > 1:
        with pytest.raises(ValueError, match="EXIF turns it, but not in training"):
            examine_image(path)
    else:
        found = examine_image(path, (width, height))
        assert found.size == ((48, 64) if orientation == 6 else (64, 48))
        assert found.notes == [TURNED] * (orientation > 1)
        with pytest.raises(ValueError, match=f"{width}x{height} pixels.*{height}x{width}"):
            examine_image(path, (height, width))


@pytest.mark.parametrize(
    ("name", "array", "levels"),
    [
        ("a.png", PICTURE, 0),
        ("a.png", PICTURE.astype(np.uint16) * 257, len(np.unique(PICTURE))),
        ("a.png", PICTURE.astype(np.uint16) * 16, "12 bits in 16.* 16 grey levels"),
        ("a.tif", PICTURE[..., 0].astype(np.uint16) * 16, "12 bits in 16"),
        ("a.png", np.zeros((4, 4), np.uint16), 1),
        ("a.tif", PICTURE[..., 0].astype(np.float32), "OpenCV.*cannot read it"),
    ],
)
def test_depth(tmp_path, name, array, levels):
    cv2.imwrite(str(tmp_path / name), array)
    if isinstance(levels, str):
        with pytest.raises(ValueError, match=levels):
            examine_image(tmp_path / name)
    else:
        assert examine_image(tmp_path / name).levels == levels


def test_what_the_training_does_not_see_is_noted(tmp_path):
    """Further pages of a TIFF, and a channel beside RGB that is not constant."""
    pages = [Image.fromarray(PICTURE), Image.fromarray(PICTURE[::-1])]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert "several pages" in examine_image(tmp_path / "a.tif").notes[0]
    for alpha, noted in ((PICTURE[..., :1], True), (np.full_like(PICTURE[..., :1], 255), False)):
        cv2.imwrite(str(tmp_path / "b.png"), np.dstack([PICTURE, alpha]))
        assert any("fourth channel" in note for note in examine_image(tmp_path / "b.png").notes) == noted


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_files_that_are_cut_off_or_something_else(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(PICTURE).save(path)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match="damaged"):
        examine_image(path)
    path.write_text("<html>")
    with pytest.raises(ValueError, match="cannot read it"):
        examine_image(path)
