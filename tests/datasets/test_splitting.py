"""Splits are seeded, keep near-duplicates together and every class on both sides."""

import numpy as np
import pytest
from PIL import Image

from helpers import folders
from mmlisa.datasets.folder import Dataset, Sample
from mmlisa.datasets.splitting import near_duplicates, prepare_data, shared_images, split


def make(number, labels=(-1,), seed=0):
    rng = np.random.default_rng(seed)
    samples = [
        Sample(f"{index}.jpg", hash=rng.integers(0, 256, 32, dtype=np.uint8), label=labels[index % len(labels)])
        for index in range(number)
    ]
    return Dataset(folders.Path("data"), "", "classification", [], samples)


def copy_of(sample, bits, path):
    flipped = np.unpackbits(sample.hash)
    flipped[:bits] ^= 1
    return Sample(path, hash=np.packbits(flipped), label=sample.label)


def test_the_seed_decides():
    first, same, other = make(50), make(50), make(50)
    split(first, 1), split(same, 1), split(other, 2)
    assert [s.split for s in first.samples] == [s.split for s in same.samples] != [s.split for s in other.samples]
    assert len(first.split("val")) == 10


def test_every_class_is_on_both_sides():
    dataset = make(60, labels=(0, 1, 1, 1, 1, 2))
    split(dataset)
    for label in range(3):
        of_class = [sample.split for sample in dataset.samples if sample.label == label]
        assert of_class.count("val") == pytest.approx(0.2 * len(of_class), abs=1)


@pytest.mark.parametrize("seed", range(5))
def test_every_class_stays_in_the_training(seed):
    """Also one of a single image, and one whose images are all near-duplicates."""
    dataset = make(21, labels=(0,) * 20 + (1,))
    dataset.samples += [Sample(f"like{i}.jpg", hash=np.full(32, 7, np.uint8), label=2) for i in range(6)]
    split(dataset, seed)
    assert [sample.split for sample in dataset.samples[20:]] == ["train"] * 7
    assert len(dataset.split("val")) == 4


@pytest.mark.parametrize("seed", range(5))
def test_most_images_of_a_class_stay_in_the_training(seed):
    """Of class 1, 38 of 40 images look alike."""
    dataset = make(160)
    dataset.samples += [Sample(f"like{i}.jpg", hash=np.full(32, 7, np.uint8), label=1) for i in range(38)]
    dataset.samples += [copy_of(dataset.samples[-1], 100 + 50 * i, f"other{i}.jpg") for i in range(2)]
    split(dataset, seed)
    sides = [sample.split for sample in dataset.samples if sample.label == 1]
    assert sides == ["train"] * 38 + ["val"] * 2


@pytest.mark.parametrize("seed", range(20))
def test_a_validation_has_objects(seed):
    """Five of 60 images are annotated."""
    dataset = make(60)
    for sample in dataset.samples[::12]:
        sample.objects = [{"category_id": 0}]
    split(dataset, seed)
    assert [len([sample for sample in dataset.split(side) if sample.objects]) for side in ("train", "val")] == [4, 1]
    assert len(dataset.split("val")) == 12


@pytest.mark.parametrize("seed", range(5))
def test_the_last_images_of_a_class_of_objects_stay_in_the_training(seed):
    """Ten classes of one image, ten of two, and one of all 100."""
    dataset = make(100)
    for index, sample in enumerate(dataset.samples):
        sample.objects = [{"category_id": label} for label in ([0, 0, index + 1] if index < 10 else [0])]
    for index in range(20):
        dataset.samples[20 + index].objects.append({"category_id": 11 + index // 2})
    split(dataset, seed)
    assert {entry["category_id"] for sample in dataset.split("train") for entry in sample.objects} == set(range(21))
    assert len(dataset.split("val")) == 20


@pytest.mark.parametrize(("bits", "together"), [(12, True), (13, False)])
def test_near_duplicates_by_the_distance_of_their_hashes(bits, together):
    dataset = make(2)
    dataset.samples.append(copy_of(dataset.samples[0], bits, "copy.jpg"))
    assert ([0, 2] in near_duplicates(dataset.samples)) == together


def test_near_duplicates_stay_together():
    dataset = make(40)
    for index in range(20):
        near = copy_of(dataset.samples[index], 8, f"near{index}.jpg")
        dataset.samples += [near, copy_of(near, 8, f"far{index}.jpg")]
        dataset.samples[-1].hash = copy_of(near, 16, "").hash  # 8 from near, 8 more from the original
    for seed in range(5):
        for sample in dataset.samples:
            sample.split = ""
        assert "near-duplicates stay" in split(dataset, seed)
        sides = {sample.path: sample.split for sample in dataset.samples}
        assert set(sides.values()) == {"train", "val"}
        for index in range(20):
            assert sides[f"{index}.jpg"] == sides[f"near{index}.jpg"] == sides[f"far{index}.jpg"]


def test_roboflow_copies_stay_together():
    dataset = make(6)
    for index, sample in enumerate(dataset.samples):
        sample.path = f"train/scene{index // 2}_jpg.rf.{index:032x}.jpg"
    assert sorted(near_duplicates(dataset.samples)) == [[0, 1], [2, 3], [4, 5]]


def test_roboflow_copies_of_one_name_in_two_folders_are_of_two_images():
    dataset = make(2)
    for sample, folder in zip(dataset.samples, ("cat", "dog"), strict=True):
        sample.path = f"{folder}/1_jpg.rf.0{folder[0]}.jpg"
    assert near_duplicates(dataset.samples) == [[0], [1]]


def test_images_that_all_look_alike_are_split_nevertheless():
    dataset = make(1)
    dataset.samples += [copy_of(dataset.samples[0], bits % 5, f"{bits}.jpg") for bits in range(30)]
    assert "could not be kept together" in split(dataset)
    assert 4 <= len(dataset.split("val")) <= 8


def test_one_image_cannot_be_split():
    dataset = make(1)
    dataset.samples.append(copy_of(dataset.samples[0], 0, "copy.jpg"))
    with pytest.raises(ValueError, match=r"only 1 different image; .* add images"):
        split(dataset)


def test_test_images_stay():
    dataset = make(20)
    for sample in dataset.samples[:5]:
        sample.split = "test"
    split(dataset)
    assert [sample.split for sample in dataset.samples[:5]] == ["test"] * 5
    assert len(dataset.split("val")) == 3


def test_images_of_two_splits_are_named():
    dataset = make(10)
    for sample in dataset.samples[:6]:
        sample.split = "train"
    for sample in dataset.samples[6:]:
        sample.split = "val"
    assert shared_images(dataset) == ""
    dataset.samples[7].hash = dataset.samples[2].hash
    assert "7.jpg: this image is also in train (in all 1 of the 4 images of val)" in shared_images(dataset)


def test_images_of_training_and_test_are_named():
    dataset = make(4)
    for sample, side in zip(dataset.samples, ("train", "train", "val", "test"), strict=True):
        sample.split = side
    dataset.samples[3].hash = dataset.samples[0].hash
    assert "of test" in shared_images(dataset)
    dataset.samples[2].hash = dataset.samples[1].hash
    for words in (
        "2.jpg: this image is also in train (in all 1 of the 1 images of val)",
        "3.jpg: this image is also in",
    ):
        assert words in shared_images(dataset)


@pytest.mark.parametrize("size", [(2, 500), (500, 7)])
def test_strips_are_left_out(size, tmp_path):
    """Both sides count: an image of 2x500 pixels would stop the training."""
    folders.write_classes(tmp_path, 12)
    strip = next(tmp_path.glob("*/*.jpg")).with_name("strip.png")
    Image.new("RGB", size).save(strip)
    dataset = prepare_data(tmp_path)
    assert str(strip.relative_to(tmp_path)) not in {sample.path for sample in dataset.samples}
    assert any(f"{strip}: the image has {size[0]}x{size[1]} pixels" in note for note in dataset.notes)
