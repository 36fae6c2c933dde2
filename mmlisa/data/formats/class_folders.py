"""Class folders: a folder of images per class, under ``train/`` and ``val/`` where there are splits."""

import re
from collections import defaultdict
from pathlib import PurePosixPath

from ..dataset import Dataset
from ..folder import SPLIT_WORDS, Evidence, Folder, is_image_word, is_map_word, split_of
from .objects import Objects

NAME = "class folders"
LAYOUT = "train/<class>/*.jpg, val/<class>/*.jpg            class folders; also <class>/*.jpg"


def recognises(folder: Folder) -> Evidence | None:
    """Look for a folder of images per class, and for signs that something else is meant."""
    labels = _find_labels(folder)
    if len(classes := sorted({name for _, name in labels.values()})) < 2:
        return None
    return Evidence(f"{len(classes)} folders", tasks=("classification",), doubt=_find_doubt(folder, labels, classes))


def read(folder: Folder, task: str) -> Dataset:
    """Read the classes, those of the training."""
    labels, objects = _find_labels(folder), Objects(folder, NAME)
    names = {name for split, name in labels.values() if split == "train"} or {name for _, name in labels.values()}
    classes = sorted(names)
    for image in folder.images:
        split, name = labels.get(image, ("", ""))
        if name not in names:
            reason = f"{name!r} has no images in train" if name else "it is in no folder of a class; move it away"
            objects.lost.append((folder.root / image, reason))
        elif sample := objects.add_image(image, image, split=split):
            sample.label = classes.index(name)
    return objects.finish_labels(classes)


def _find_labels(folder: Folder) -> dict[str, tuple[str, str]]:
    """Return the split and the class of each image in a folder of a class."""
    paths = {image: PurePosixPath(image).parent.parts for image in folder.images}
    while len({each[:1] for each in paths.values()}) == 1 and all(paths.values()):
        paths = {image: each[1:] for image, each in paths.items()}  # a folder around all
    paths = {image: each[len(each) > 2 and each[0] == each[1] :] for image, each in paths.items()}  # train/train/cat
    has_splits = any(len(each) > 1 and split_of(f"{each[0]}/x") for each in paths.values())
    return {
        image: (split_of(f"{each[0]}/x") if has_splits else "", each[has_splits])
        for image, each in paths.items()
        if len(each) > has_splits and bool(split_of(f"{each[0]}/x")) == has_splits
    }


def _find_doubt(folder: Folder, labels: dict[str, tuple[str, str]], classes: list[str]) -> str:
    """Return why the folders may not be classes; empty if nothing else could be meant."""
    texts = folder.files(".txt", ".xml", ".json", ".yaml", ".yml", ".csv")
    if texts := [path for path in texts if not re.search(r"(readme|licen[cs]e)[^/]*$", path.lower())]:
        return f"the text files, such as {texts[0]}, may be annotations"
    for name, lower in ((name, name.lower()) for name in classes):
        if is_image_word(lower) or is_map_word(lower) or SPLIT_WORDS.keys() & re.findall("[a-z]+", lower):
            return f"the folder {name} is named as a split or as a kind of file"
    names = defaultdict(set)
    for image, (split, name) in labels.items():
        if name != PurePosixPath(image).parent.name:
            return f"{image} lies in a folder of a folder"
        names[split, name].add(PurePosixPath(image).stem)
    for (split, name), stems in names.items():
        others = set().union(*(each for (its, other), each in names.items() if its == split and other != name))
        if 2 * len(stems & others) > len(stems):
            return f"most files of {name} have the names of files in another folder, as images and their masks do"
    return ""
