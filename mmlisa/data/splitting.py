"""Preparation of a user's folder: it is read and examined, and without a validation split, one is drawn."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mmlisa.errors import UserError

from .dataset import Dataset, Sample
from .formats import read

_EVERY = 5  # one image of so many is for validation


def prepare_data(root: str | Path, task: str = "", ignore: Sequence[int] = (), background: str = "auto") -> Dataset:
    """Read a folder with :func:`mmlisa.data.formats.read`, and split its images if there is no validation.

    ``background`` is ``'on'`` or ``'off'`` for training images without an object; ``'auto'`` keeps them if they are at most as
    many as the others.
    """
    dataset = read(root, task, ignore)
    if not dataset.split("val"):
        dataset.facts.append(split(dataset))
    train = dataset.split("train")
    digests = {sample.digest for sample in train}
    for name in ("val", "test"):
        samples = dataset.split(name)
        if repeated := [sample for sample in samples if sample.digest in digests]:
            text = f"{len(repeated)} of the {len(samples)} images of {name} are in train, too; keep each in one split"
            dataset.notes.append(f"warning: {dataset.root / repeated[0].path}: {text}")
    empty = [sample for sample in train if not sample.objects] if dataset.task == "detection" else []
    if empty:
        keep = background == "on" or (background == "auto" and 2 * len(empty) <= len(train))
        what = "trained on as background; --background off" if keep else "left out; --background on"
        text = f"{len(empty)} of {len(train)} training images show no object and are {what} changes that"
        dataset.notes.append(f"background: {text}")
        if not keep:
            dataset.samples = [sample for sample in dataset.samples if sample.split != "train" or sample.objects]
    shown = {name: set(dataset.count(name)) for name in ("train", "val")}
    for name, classes in shown.items():
        if not classes:
            raise UserError(f"{root}: no image of {name} has an object that counts; annotate some, or remove {name}")
    if not shown["train"] & shown["val"]:
        raise UserError(f"{root}: no class of train occurs in val; each class needs images in both")
    if absent := [name for index, name in enumerate(dataset.classes) if index not in shown["train"]]:
        dataset.notes.append(f"warning: no training image shows {', '.join(absent)}, which the model cannot learn")
    return dataset


def split(dataset: Dataset, seed: int = 0) -> str:
    """Assign a fifth of the images that are not test images to ``val``, the others to ``train``, and return how, in a sentence.

    Each class of class folders has the same share on both sides, and so have images with and without objects. Equal files and
    Roboflow's augmented copies ``NAME.rf.HASH.jpg`` of an image stay on one side.
    """
    by_key: dict[object, list[Sample]] = {}
    for sample in (sample for sample in dataset.samples if sample.split != "test"):
        original = re.sub(r"\.rf\.\w+\.\w+$", "", sample.path)
        group = next((by_key[key] for key in (sample.digest, original) if key in by_key), [])
        group.append(sample)
        by_key[sample.digest] = by_key[original] = group
    groups = list({id(group): group for group in by_key.values()}.values())
    if len(groups) < 2:
        raise UserError(f"{dataset.root} holds fewer than two different images; training and validation need one each")
    drawn = [groups[index] for index in np.random.default_rng(seed).permutation(len(groups))]
    drawn.sort(key=lambda group: (group[0].label, bool(group[0].objects)))
    for number, group in enumerate(drawn):
        for sample in group:
            sample.split = "val" if number % _EVERY == 1 else "train"  # with two images, the second validates
    train, val = (len(dataset.split(name)) for name in ("train", "val"))
    return f"splits: {train} images for training and {val} for validation, drawn with seed {seed}"
