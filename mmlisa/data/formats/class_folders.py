"""Class folders: a folder of images per class, under ``train/`` and ``val/`` where there are splits."""

from pathlib import PurePosixPath

from ..folder import Dataset, Evidence, Folder, Sample, is_image_word, is_map_word, split_of

NAME, TASKS = "class folders", ("classification",)
LAYOUT = "train/<class>/*.jpg, val/<class>/*.jpg            class folders; also <class>/*.jpg"


def recognises(folder: Folder) -> Evidence | None:
    """Return the split and the class of each image; None if there are not two classes."""
    paths = {image: PurePosixPath(image).parts for image in folder.images}
    has_splits = any(len(parts) > 2 and split_of(f"{parts[0]}/x") for parts in paths.values())
    found = {
        image: (split_of(f"{parts[0]}/x") if has_splits else "", parts[has_splits])
        for image, parts in paths.items()
        if len(parts) > 1 + has_splits and bool(split_of(f"{parts[0]}/x")) == has_splits
    }
    classes = {name for _, name in found.values()}
    kinds = [name for name in classes if is_image_word(name.lower()) or is_map_word(name.lower())]
    return Evidence(found) if len(classes) > 1 and not kinds else None


def read(folder: Folder) -> Dataset:
    """Read the classes, those of the training."""
    labels = recognises(folder).files
    named = {name for split, name in labels.values() if split == "train"} or {name for _, name in labels.values()}
    classes = sorted(named)
    samples = [Sample(i, split, label=classes.index(name)) for i, (split, name) in labels.items() if name in named]
    dataset = Dataset(folder.root, NAME, "classification", classes, samples)
    if outside := len(folder.images) - len(samples):
        dataset.notes.append(f"{outside} images outside of the class folders (those in train, if any) are left out")
    return dataset
