"""Class maps: a picture of class numbers for each image."""

import re
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from ..folder import (
    Dataset,
    Evidence,
    Folder,
    Sample,
    is_image_word,
    is_map_word,
    listed_splits,
    note_problems,
    split_of,
)

NAME, TASKS = "class maps", ("segmentation",)
LAYOUT = "images/*.jpg, masks/*.png, classes.txt            class maps"
_MOST_CLASSES = 182  # COCO-Stuff's number; class maps with higher values and 255 are masks with soft edges


def recognises(folder: Folder) -> Evidence | None:
    """Return the class map of each image."""
    return Evidence(pairs) if (pairs := _pair_maps(folder)) else None


def read(folder: Folder) -> Dataset:
    """Class maps: a picture of class numbers for each image; 255 is not annotated, or the object in masks of 0 and 255.

    Raises:
        ValueError: more than a tenth of the maps cannot be used, or the classes do not explain the values.
    """
    pairs, samples, problems, values = recognises(folder).files, [], [], set()
    listed = listed_splits(folder, "Segmentation")
    for image, seg_map in pairs.items():
        path = folder.root / seg_map
        try:
            with Image.open(path) as picture:
                size, mode, pixels = picture.size, picture.mode, np.asarray(picture)
        except (OSError, SyntaxError, ValueError) as error:
            problems.append(f"{path}: the class map cannot be read ({error}); export it again")
            continue
        if pixels.ndim == 2:
            values.update(np.unique(pixels).tolist())
            samples.append(Sample(image, listed.get(PurePosixPath(image).stem, split_of(image)), size, seg_map=seg_map))
        else:
            problems.append(f"{path}: the class map is a colour picture ({mode}); save class numbers, 8 bits per pixel")
    notes = note_problems(problems, len(pairs), "class maps")
    named = folder.root / "classes.txt"
    classes = named.read_text(encoding="utf-8").split("\n") if named.is_file() else []
    classes = [line.strip() for line in classes if line.strip()]
    highest, label_map = max(values - {255}, default=0), {}
    if values <= {0, 255}:
        label_map, highest, classes = {255: 1}, 1, classes or ["background", "object"]
        notes.append(f"the class maps hold 0 and 255 only; 255 is taken for class 1, {classes[-1]}")
    if not classes and highest <= _MOST_CLASSES:
        classes = [f"class {index}" for index in range(highest + 1)]
        notes.append("the classes have no names; add classes.txt, a name per line, from class 0 on")
    if highest >= len(classes):
        raise ValueError(
            f"the class maps of {folder.root} hold class {highest}, but classes.txt names {len(classes)}; name all classes, and "
            "save masks without soft edges"
        )
    return Dataset(folder.root, NAME, "segmentation", classes, samples, notes, label_map=label_map)


def _pair_maps(folder: Folder) -> dict[str, str]:
    """Return the class map of each image: the one of the same path, apart from words such as ``images`` and ``masks``."""
    maps: dict[tuple[str, ...], list[str]] = {}
    images: dict[tuple[str, ...], str] = {}
    for path in folder.images:
        words = [word for word in re.split(r"[/_\-.]", path.lower()) if word]
        suffix = words.pop()
        key = tuple(word for word in words if not is_map_word(word) and not is_image_word(word))
        if suffix in ("png", "tif", "tiff", "bmp") and any(map(is_map_word, words)):
            maps.setdefault(key, []).append(path)
        else:
            images[key] = path
    # Cityscapes has two class maps per image, of which the one with trainIds is trained on.
    best = {key: max(paths, key=lambda path: "trainids" in path.lower()) for key, paths in maps.items()}
    return {images[key]: best[key] for key in sorted(images.keys() & best.keys(), key=images.__getitem__)}
