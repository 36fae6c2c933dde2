"""Class maps: a picture or an array of class numbers for each image.

A map has the path of its image, apart from words such as ``images`` and ``masks``.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mmlisa.errors import UserError

from .dataset import UNKNOWN, Dataset, Objects, count_values
from .folder import Evidence, Folder, is_kind, is_map_word

NAME = "class maps"
LAYOUT = "images/*.jpg, masks/*.png, classes.txt            class maps"
_MOST_CLASSES = 182  # COCO-Stuff's number; more values, or rare ones beside gaps, come from soft edges
_RARE = 0.001  # share of the pixels
_SHOWN = 20  # values in a message
_IGNORED_NAMES = ("__ignore__", "ignore", "ignored", "void", "unlabeled", "unlabelled")


def recognises(folder: Folder) -> Evidence | None:
    maps, images = {}, {}
    for path in [*folder.images, *folder.files(".npy")]:
        *words, suffix = (word for word in re.split(r"[/_\-. ]", path.lower()) if word)
        key = tuple(word for word in words if not is_kind(word))
        if any(map(is_map_word, words)):
            # Cityscapes has several maps per image, of which trainIds are trained on; LabelMe has an array beside each picture.
            rivals = maps.get(key, path), path
            maps[key] = max(rivals, key=lambda each: ("trainids" in each.lower(), not each.endswith("npy")))
        elif suffix != "npy":
            images[key] = path
    if not (maps and images):
        return None
    pairs = {images[key]: maps[key] for key in sorted(images.keys() & maps.keys(), key=images.__getitem__)}
    bare = [path for key, path in images.items() if key not in maps]
    alone = [path for key, path in maps.items() if key not in images and key[:-1] not in images]
    why = f"{len(pairs)} maps such as {min(pairs.values(), default='')}"
    lacks = "" if pairs else f"{min(maps.values())} has the name of no image, as masks/a.png has that of images/a.jpg"
    return Evidence(why, lacks, ("segmentation",), (pairs, alone, bare))


def read(folder: Folder, found: tuple[dict[str, str], list[str], list[str]], task: str) -> Dataset:
    (pairs, alone, bare), is_plain = found, True
    objects = Objects(folder, folder.listed_splits("Segmentation"))
    objects.lost += [(folder.root / path, "no image belongs to this class map") for path in alone]
    for image, seg_map in pairs.items():
        try:
            values, is_read_so = load_values(folder.root / seg_map)
        except UserError as error:
            objects.lost.append((folder.root / seg_map, str(error)))
            continue
        if sample := objects.add_image(seg_map, image, values.shape[::-1]):
            is_plain &= is_read_so
            sample.seg_map, sample.counts = seg_map, count_values(values)
    dataset = objects.dataset("segmentation", [], "class maps")
    if bare:
        dataset.notes.append(
            f"{len(bare)} images have no class map and are not used, the first {folder.root / bare[0]}"
        )
    dataset.classes, labels, chosen = _choose_classes(folder, [sample.counts for sample in dataset.samples])
    dataset.notes += chosen
    if not folder.class_names()[1]:
        dataset.notes += _find_doubts([sample.counts for sample in dataset.samples])
    for sample in dataset.samples:
        sample.counts = Counter({labels[value]: count for value, count in sample.counts.items()})
        del sample.counts[UNKNOWN]
    dataset.values = None if is_plain and all(value == label for value, label in labels.items()) else labels
    return dataset


def _find_doubts(maps: Sequence[Counter[int]]) -> list[str]:
    """Return what class maps without names may be instead: masks of objects, or inverted masks."""
    counts = sum(maps, Counter())
    values = [value for value in sorted(counts) if value != UNKNOWN or len(counts) == 2]
    of_maps = [each.keys() & {*values} for each in maps]
    highest = {max(each, default=0) for each in of_maps}
    if len(values) > 2 and len(highest) > 1 and all(each == {*range(len(each))} for each in of_maps):
        what = f"each map holds the values from 0 to a number between {min(highest)} and {max(highest)}"
        return [f"warning: {what}; if they count objects, these are no classes: write the class of each pixel"]
    if len(values) == 2 and values[0] == 0 and 2 * counts[0] < counts.total():
        share = f"the objects fill {1 - counts[0] / counts.total():.0%} of the pixels"
        return [f"warning: {share}; are the maps inverted? 0 is the background"]
    return []


def load_values(path: Path) -> tuple[np.ndarray, bool]:
    """Return a class map as it is stored, ``[H, W]``, whole numbers, and whether a training reads it so."""
    if path.suffix.lower() in (".jpg", ".jpeg", ".jfif", ".webp"):
        raise UserError("the class map is a JPEG or WebP, which change class numbers; save it as PNG")
    try:
        if path.suffix == ".npy":
            values = np.load(path)
        else:
            with Image.open(path) as picture:
                values = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"the class map cannot be read ({error}); export it again") from error
    is_plain = path.suffix != ".npy" and values.ndim == 2 and values.dtype == np.uint8
    if values.ndim == 3 and (values[..., :1] == values[..., : 1 if values.shape[2] == 2 else 3]).all():
        values = values[..., 0]  # grey, stored as colours or with an alpha channel
    if values.ndim != 2:
        raise UserError("the class map is a colour picture; save class numbers, one channel of 8 bits")
    if values.dtype.kind == "f" and (values != np.round(values)).any():
        raise UserError("the class map holds fractions; save class numbers")
    return values.astype({"f": int, "b": np.uint8}.get(values.dtype.kind, values.dtype), copy=False), is_plain


def _choose_classes(folder: Folder, maps: Sequence[Counter[int]]) -> tuple[list[str], dict[int, int], list[str]]:
    """Return the names of the classes, the label of each value of the class maps, and notes."""
    counts = sum(maps, Counter())
    file, lines = folder.class_names()
    lines = ["background" if line == "_background_" else line for line in lines if line != "__ignore__"]  # LabelMe's
    numbered = [re.fullmatch(r"(\d+)[\s:,;=]+(.+)", line) for line in lines]
    has_numbers = bool(lines) and all(numbered)
    named = {int(match[1]): match[2] for match in numbered} if has_numbers else dict(enumerate(lines))
    ignored = {value for value in counts if value < 0} | {*folder.ignore}
    ignored |= {value for value, name in named.items() if name.lower() in _IGNORED_NAMES}
    values = sorted(counts.keys() - ignored)
    others = [value for value in values if value != UNKNOWN]
    if UNKNOWN in values and UNKNOWN not in named and len(others) > 1:
        is_border = 2 * counts[UNKNOWN] < counts.total()
        # Where some masks are of 0 and 1 and the others of 0 and 255, no map has both.
        is_border &= any(UNKNOWN in each and each.keys() & {*others[1:]} for each in maps)
        in_a_row = others == [*range(others[0], others[0] + len(others))] and others[0] < 2
        if (others[-1] < len(lines) or len(others) == len(lines)) if lines else in_a_row and is_border:
            values, ignored = others, ignored | {UNKNOWN}
    share = {value: f"{value} ({counts[value] / counts.total():.1%})" for value in counts}
    shown = ", ".join(map(share.get, values[:_SHOWN])) + ", …" * (len(values) > _SHOWN)
    held = f"the class maps of {folder.root} hold the values {shown}"
    if len(values) < 2:
        raise UserError(f"{held}; a training needs two classes")
    notes = []
    if lines and not has_numbers and values[-1] >= len(lines):
        if len(lines) != len(values):
            remedy = f"name all, write its value before each name, or leave a value out, such as --ignore {values[0]}"
            raise UserError(f"{held}, but {file} names {len(lines)} classes ({', '.join(lines)}); {remedy}")
        named = dict(zip(values, lines, strict=True))
    classes = {value: name for value, name in sorted(named.items()) if value not in ignored}
    if lines and (unnamed := [value for value in values if value not in classes]):
        remedy = f"add it, or leave it out with --ignore {unnamed[0]}"
        raise UserError(f"{held}, but {file} does not name {unnamed}; {remedy}")
    if not lines:
        has_gaps = values != [*range(len(values))]
        if len(values) > _MOST_CLASSES or (has_gaps and min(map(counts.get, values)) < _RARE * counts.total()):
            remedy = "save masks without soft edges, or add classes.txt with a value and a name per line"
            raise UserError(f"{held}, as soft edges or JPEG leave them; {remedy}")
        classes = {value: f"value {value}" if has_gaps else f"class {value}" for value in values}
        classes = {0: "background", UNKNOWN: "object"} if values == [0, UNKNOWN] else classes
        notes.append("the classes have no names; add classes.txt, a name per line, from class 0 on")
    labels = {value: label for label, value in enumerate(classes)}
    if any(value != label for value, label in labels.items()):
        listed = ", ".join(f"{value} -> {name}" for value, name in classes.items())
        notes.append(f"classes of the values in the class maps: {listed}")
    if left := [value for value in counts if value in ignored]:
        notes.append(f"not annotated: pixels of value {', '.join(map(share.get, left))}")
    return list(classes.values()), labels | dict.fromkeys(left, UNKNOWN), notes
