"""Class folders: a folder of images per class, under ``train/`` and ``val/`` where there are splits."""

import re
from collections import defaultdict
from pathlib import PurePosixPath

from .dataset import Dataset, Objects
from .folder import SPLIT_WORDS, Evidence, Folder, is_kind, split_of

NAME = "class folders"
LAYOUT = "train/<class>/*.jpg, val/<class>/*.jpg            class folders; also <class>/*.jpg"
Labels = dict[str, tuple[str, str]]  # split and class of each image in a folder of a class


def recognises(folder: Folder) -> Evidence | None:
    labels = _find_labels(folder)
    if len(classes := sorted({name for _, name in labels.values()})) < 2:
        return None
    doubt = _find_doubt(folder, labels, classes)
    return Evidence(f"{len(classes)} folders", tasks=("classification",), content=labels, doubt=doubt)


def read(folder: Folder, labels: Labels, task: str) -> Dataset:
    objects, names = Objects(folder), {name for split, name in labels.values() if split == "train"}
    classes = {name: label for label, name in enumerate(sorted(names or {name for _, name in labels.values()}))}
    for image in folder.images:
        split, name = labels.get(image, ("", ""))
        if name not in classes:
            reason = f"{name!r} has no images in train" if name else "it is in no folder of a class; move it away"
            objects.lost.append((folder.root / image, reason))
        elif sample := objects.add_image(image, image, split=split):
            sample.label = classes[name]
    return objects.dataset("classification", [*classes])


def _find_labels(folder: Folder) -> Labels:
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


def _find_doubt(folder: Folder, labels: Labels, classes: list[str]) -> str:
    """Return why the folders may not be classes; empty if nothing else could be meant."""
    texts = folder.files(".txt", ".xml", ".json", ".yaml", ".yml", ".csv")
    if texts := [path for path in texts if not re.search(r"(readme|licen[cs]e)[^/]*$", path.lower())]:
        return f"the text files, such as {texts[0]}, may be annotations"
    for name, lower in ((name, name.lower()) for name in classes):
        if is_kind(lower) or SPLIT_WORDS.keys() & re.findall("[a-z]+", lower):
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
