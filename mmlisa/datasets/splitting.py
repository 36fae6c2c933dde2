"""Reading of a user's folder. Without a validation split, a seeded one is drawn that keeps near-duplicates together."""

import re
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np
from scipy.cluster.hierarchy import DisjointSet

from .folder import Dataset, Sample
from .formats import read

SEED = 0
_DISTANCE = 12  # of 256 bits: neighbouring frames of a video, re-encoded copies, small shifts of brightness
_MOST_COMPARED = 20_000  # images; beyond, only equal hashes are near-duplicates


def prepare_data(root: str | Path, task: str = "") -> Dataset:
    """Reads a folder with :func:`mmlisa.datasets.formats.read`, examines its images, and splits them if there is no validation.

    Raises:
        ValueError: the data cannot be used; names the file and the remedy.
        FileNotFoundError, NotADirectoryError: the folder does not exist.
    """
    dataset = read(root, task)
    dataset.examine()
    if not dataset.split("val"):
        dataset.notes.append(split(dataset))
    if shared := shared_images(dataset):
        dataset.notes.append(f"warning: {shared}")
    train = dataset.split("train")
    if not train:
        raise ValueError(f"{root} has images for validation, but none in a folder train; add training images")
    if dataset.task == "detection" and (empty := sum(not sample.objects for sample in train)):
        # The written config's filter_empty_gt drops them, so the plan of the training must not count them.
        dataset.samples = [sample for sample in dataset.samples if sample.split != "train" or sample.objects]
        dataset.notes.append(f"{root}: {empty} of {len(train)} training images show no object and are left out")
        train = dataset.split("train")
        if not train:
            raise ValueError(f"{root} has no training image with an object; annotate some, or move some of validation")
    if dataset.task != "segmentation":
        seen = {sample.label for sample in train}
        seen |= {entry["category_id"] for sample in train for entry in sample.objects if not entry["iscrowd"]}
        if absent := [name for index, name in enumerate(dataset.classes) if index not in seen]:
            dataset.notes.append(
                f"{root}: no training image shows {', '.join(absent)}, so that the model cannot find them; add images"
            )
    return dataset


def split(dataset: Dataset, seed: int = SEED, share: float = 0.2) -> str:
    """Assigns the training images of a data set without validation to ``train`` and ``val``.

    Classes of class folders have the same share in both, and so have images with and without objects. Every class of objects
    stays in the training. Images that differ in at most 12 of the 256 bits of their perceptual hash, and Roboflow's augmented
    copies of an image, go to the same side.

    Args:
        dataset: examined, so that its samples have hashes; the samples' ``split`` is set.
        seed: decides which images are validated on.
        share: of the images, for validation.

    Returns:
        How the images were split, in a sentence.

    Raises:
        ValueError: all images are near-duplicates of one another, or there are none.
    """
    samples = [sample for sample in dataset.samples if sample.split in ("", "train")]
    groups = near_duplicates(samples)
    note = ""
    if max(map(len, groups), default=0) > 0.3 * len(samples) and len(samples) > 10:
        note = " Most images look alike, so that near-duplicates could not be kept together."
        groups = [[index] for index in range(len(samples))]
    if len(groups) < 2:
        raise ValueError(
            f"{dataset.root} holds only {len(groups)} different image{'s' * (len(groups) != 1)}; training and validation need at "
            "least one each: add images"
        )
    shown = [{entry["category_id"] for entry in sample.objects if not entry.get("iscrowd")} for sample in samples]
    left = Counter(label for labels in shown for label in labels)  # training images of each class
    rng, val = np.random.default_rng(seed), []
    # Each class of class folders has the same share on both sides; of objects, the images with and without them.
    strata: dict[tuple[int, bool], list[list[int]]] = {}
    for group in groups:
        strata.setdefault((samples[group[0]].label, any(shown[index] for index in group)), []).append(group)
    for stratum in strata.values():
        whole = sum(map(len, stratum))
        wanted, taken = share * whole, 0
        for index in rng.permutation(len(stratum)):
            size, held = len(stratum[index]), Counter(label for i in stratum[index] for label in shown[i])
            is_free = all(left[label] > number for label, number in held.items())
            # The first group may be larger than the share, but half of the class stays in the training.
            fits = taken + size <= 1.5 * wanted or (not taken and 2 * size <= whole)
            if is_free and taken < wanted and fits:
                taken += size
                left -= held
                val += stratum[index]
    for sample in samples:
        sample.split = "train"
    for index in val or (val := min(groups, key=len)):  # every class may have a single group
        samples[index].split = "val"
    kept = len(samples) - len(groups)
    note = note or f" {kept} near-duplicates stay on the side of their original." * bool(kept)
    return f"{len(samples) - len(val)} images for training and {len(val)} for validation, drawn with seed {seed}.{note}"


def near_duplicates(samples: list[Sample]) -> list[list[int]]:
    """Groups of sample indices; two samples share a group if a chain of near-duplicates connects them."""
    groups = DisjointSet(range(len(samples)))
    hashes = np.stack([sample.hash for sample in samples]) if samples else np.zeros((0, 32), np.uint8)
    first: dict[object, int] = {}
    for index, sample in enumerate(samples):
        path = PurePosixPath(sample.path)
        original = re.sub(r"\.rf\.[0-9a-f]+$", "", path.stem)  # Roboflow's name of an augmented copy
        keys = [hashes[index].tobytes()] + ([(path.parent, original)] if original != path.stem else [])
        for key in keys:
            groups.merge(first.setdefault(key, index), index)
    if len(samples) <= _MOST_COMPARED:
        bits = np.unpackbits(hashes, axis=1).astype(np.float32)
        ones = bits.sum(1)
        for index in range(len(samples) - 1):
            distance = ones[index] + ones[index + 1 :] - 2 * (bits[index + 1 :] @ bits[index])
            for other in index + 1 + np.flatnonzero(distance <= _DISTANCE):
                groups.merge(index, int(other))
    return sorted(map(sorted, groups.subsets()))


def shared_images(dataset: Dataset) -> str:
    """Sentences about images that are in several splits; empty if there are none."""
    train = {sample.hash.tobytes() for sample in dataset.split("train")}
    sentences = []
    for split_name in ("val", "test"):
        samples = dataset.split(split_name)
        known = [sample for sample in samples if sample.hash.tobytes() in train]
        if known:
            sentences.append(
                f"{dataset.root / known[0].path}: this image is also in train (in all {len(known)} of the {len(samples)} "
                f"images of {split_name}), so that the results look better than they are; keep each image in one split"
            )
    return ". ".join(sentences)
