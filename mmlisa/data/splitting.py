"""Preparation of a user's folder: it is read and examined, and without a validation split, one is drawn."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .folder import Dataset, Sample
from .formats import read

SEED = 0
_EVERY = 5  # one image of so many is for validation


def prepare_data(root: str | Path, task: str = "") -> Dataset:
    """Read a folder with :func:`mmlisa.data.formats.read`, examine its images, and split them if there is no validation.

    Raises:
        ValueError: the data cannot be used; names the file and the remedy.
        FileNotFoundError: the folder does not exist.
    """
    dataset = read(root, task)
    dataset.examine()
    if not dataset.split("val"):
        dataset.notes.append(split(dataset))
    dataset.notes += shared_images(dataset)
    train = dataset.split("train")
    if dataset.task == "detection":
        # The config's filter_empty_gt drops images without objects, so the plan of the training must not count them.
        dataset.samples = [sample for sample in dataset.samples if sample.split != "train" or sample.objects]
        if empty := len(train) - len(train := dataset.split("train")):
            dataset.notes.append(f"{empty} training images show no object and are left out")
    if not train:
        raise ValueError(f"{root} has no images for training; add images with annotations to its folder train")
    if dataset.task != "segmentation":
        seen = {entry["category_id"] for sample in train for entry in sample.objects if not entry["iscrowd"]}
        seen |= {sample.label for sample in train}
        if absent := [name for index, name in enumerate(dataset.classes) if index not in seen]:
            dataset.notes.append(f"warning: no training image shows {', '.join(absent)}, which the model cannot learn")
    return dataset


def split(dataset: Dataset, seed: int = SEED) -> str:
    """Assign a fifth of the images that are not test images to ``val``, and the others to ``train``.

    Each class of class folders has the same share on both sides, and so have images with and without objects. Equal files and
    Roboflow's augmented copies of an image stay on one side.

    Args:
        dataset: examined; the samples' ``split`` is set.
        seed: decides which images are validated on.

    Returns:
        How the images were split, in a sentence.

    Raises:
        ValueError: there are fewer than two different images.
    """
    groups = _group_copies([sample for sample in dataset.samples if sample.split != "test"])
    if len(groups) < 2:
        raise ValueError(f"{dataset.root} holds fewer than two different images; training and validation need one each")
    drawn = [groups[index] for index in np.random.default_rng(seed).permutation(len(groups))]
    drawn.sort(key=lambda group: (group[0].label, bool(group[0].objects)))
    for number, group in enumerate(drawn):
        for sample in group:
            sample.split = "val" if number % _EVERY == 1 else "train"  # with two images, the second validates
    counts = [len(dataset.split(name)) for name in ("train", "val")]
    return f"{counts[0]} images for training and {counts[1]} for validation, drawn with seed {seed}"


def _group_copies(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Group equal files, and Roboflow's augmented copies ``NAME.rf.HASH.jpg`` of an image."""
    groups: dict[object, list[Sample]] = {}
    by_key: dict[object, list[Sample]] = {}
    for sample in samples:
        original = re.sub(r"\.rf\.\w+\.\w+$", "", sample.path)
        group = next((by_key[key] for key in (sample.digest, original) if key in by_key), [])
        group.append(sample)
        by_key[sample.digest] = by_key[original] = group
        groups[id(group)] = group
    return list(groups.values())


def shared_images(dataset: Dataset) -> list[str]:
    """Return a warning about the images of each split that are in the training, too."""
    train, notes = {sample.digest for sample in dataset.split("train")}, []
    for name in ("val", "test"):
        samples = dataset.split(name)
        if known := [sample for sample in samples if sample.digest in train]:
            notes.append(
                f"warning: {dataset.root / known[0].path}: {len(known)} of the {len(samples)} images of {name} are in train, "
                "too, so that results look better than they are; keep each image in one split"
            )
    return notes
