"""A drawn validation: a fifth of each kind, copies on one side, and a warning about images in two splits."""

import shutil
from pathlib import Path

import pytest

from helpers import folders
from mmlisa.data.dataset import Dataset, Sample
from mmlisa.data.preparation import prepare_data, split


def make(number, **changes):
    samples = [Sample(f"{index}.jpg", digest=bytes([index])) for index in range(number)]
    return Dataset(Path("data"), "classification", ["a", "b"], samples, **changes)


def test_every_class_is_on_both_sides_of_the_same_draw():
    drawn = []
    for _ in range(2):
        dataset = make(100)
        for index, sample in enumerate(dataset.samples):
            sample.label = index % 2
        split(dataset)
        drawn.append([sample.path for sample in dataset.split("val")])
        assert [sum(sample.label == label for sample in dataset.split("val")) for label in (0, 1)] == [10, 10]
    assert drawn[0] == drawn[1]


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
