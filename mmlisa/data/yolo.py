"""YOLO: a text file per image with boxes or polygons in fractions, in the layouts of Ultralytics, Roboflow, CVAT and labelImg."""

import posixpath
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any

import numpy as np

from mmlisa.datasets.annotations import check_fractions
from mmlisa.errors import UserError

from .dataset import Dataset, Objects, Sample
from .folder import SPLIT_WORDS, SPLITS, Evidence, Folder

NAME = "YOLO"
LAYOUT = "data.yaml, images/train/*.jpg, labels/train/*.txt YOLO; also *.txt beside *.jpg with classes.txt or obj.names"
Labels = dict[str, list[str]]  # the images of each label file


def recognises(folder: Folder) -> Evidence | None:
    named = folder.documents_with("names")
    settings = {name: content for name, content in named.items() if name.endswith(("yaml", "yml"))}
    for path in folder.files(".data"):
        pairs = (line.partition("=") for line in folder.text(path).splitlines())
        settings[path] = {key.strip(): value.strip() for key, _, value in pairs}
    labels = _pair_labels(folder)
    if not settings and not labels:
        return None
    names = ", ".join(settings or folder.names_of_classes)
    why = f"{names}, {len(labels)} text files such as {min(labels, default='')}"
    lacks = ""
    if len(settings) > 1:
        lacks = f"{' and '.join(settings)} both have names; keep one of them"
    elif not any(labels.values()):
        lacks = "no text file belongs to an image, as labels/a.txt or a.txt would to images/a.jpg"
    elif not settings and not any(_is_label(folder.text(label)) for label in labels):
        lacks = f"the lines of {min(labels)} are not 'class x y width height'"
    elif not settings and not folder.names_of_classes:
        lacks = "the names of the classes are missing; add classes.txt, a name per line"
    file, content = next(iter(settings.items()), ("", {}))
    return Evidence(why, lacks, content=(file, content, labels))


def read(folder: Folder, found: tuple[str, dict[str, Any], Labels], task: str) -> Dataset:
    file, settings, labels = found
    objects = Objects(folder, _read_splits(folder, file, settings))
    names = _read_names(folder, file, settings) if file else {}
    last = 5 if "kpt_shape" in settings else None  # the class and its box, without keypoints
    pairs = {image: label for label, images in labels.items() for image in images}
    places = set(map(posixpath.dirname, pairs))
    alone = [folder.root / path for path, images in labels.items() if not images]
    objects.lost += [(path, "no image belongs to this file") for path in alone]
    classes, lengths, boxes, bare = list(names.values()), [], [], []
    for image in folder.images:
        label = pairs.get(image, "")
        if not label and posixpath.dirname(image) not in places and image not in objects.splits:
            continue
        sample = objects.add_image(image, image)
        if not label:
            bare.append(folder.root / image)
        if label and not file:
            names = dict(enumerate(folder.class_names(label)[1]))
            classes += names.values()
        for number, line in enumerate(folder.text(label).splitlines() if label else (), 1):
            where, words = f"{folder.root / label}, line {number}", line.split()
            try:
                if words and sample:
                    numbers = _add_line(objects, sample, where, words[:last], names)
                    lengths.append(len(words) - 1)
                    boxes += [numbers] if len(numbers) == 4 else []
            except UserError as error:
                objects.bad.append((where, str(error)))
    folder.notes += check_fractions(np.reshape(boxes, (-1, 4)), folder.root)
    if bare:
        text = f"{len(bare)} images have no label file, the first {bare[0]}"
        folder.notes.append(f"{text}; if they show objects, add the files, and else empty ones")
    if not last and len(lengths) > 9 and set(lengths) == {lengths[0]} and lengths[0] > 8:
        hint = "taken for outlines; if they are a box and keypoints, add kpt_shape to data.yaml"
        folder.notes.append(f"warning: all lines have {lengths[0]} numbers, {hint}")
    return objects.finish(classes)


def _pair_labels(folder: Folder) -> Labels:
    """Return the images of each label file; none for text files of numbers without an image."""
    pairs = {path: folder.find_twins(path) for path in folder.files(".txt") if path not in folder.names_of_classes}
    return {path: images for path, images in pairs.items() if images or _is_label(folder.text(path))}


def _is_label(text: str) -> bool:
    """Return whether the first line of a text is a class and its box or polygon."""
    try:
        return len([*map(float, text.strip().split("\n")[0].split())]) > 4
    except ValueError:
        return False


def _read_names(folder: Folder, file: str, settings: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of the classes by their numbers."""
    names, path = settings.get("names") or [], folder.root / file
    if isinstance(names, str):  # Darknet's: a file
        names = folder.class_names(near=file)[1]
    try:
        pairs = names.items() if isinstance(names, dict) else enumerate(names)
        by_number = {int(float(key)): str(name) for key, name in pairs}
        number = int(settings.get("nc") or settings.get("classes") or len(by_number))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: names must be a list, or a name for each number ({error})") from error
    if number != len(by_number):
        listed = ", ".join(by_number.values())
        raise UserError(f"{path} states {number} classes, but names {len(by_number)} ({listed}); correct one of them")
    return by_number


def _read_splits(folder: Folder, file: str, settings: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the splits of images as the keys ``train``, ``val`` and ``test`` state them; None if there is none of these."""
    images: dict[str, set[str]] = {}
    for key, split in SPLIT_WORDS.items():
        stated = settings.get(key) or ()
        for entry in [stated] if isinstance(stated, str) else stated:
            if entry in ("", "null", "~"):
                continue
            found = _resolve(folder, file, settings.get("path") or "", entry)
            if not found and split != "test":
                remedy = "correct it, or remove train, val and test to have a validation split drawn"
                where = f"{folder.root / file}: {key}: {entry!r}"
                raise UserError(f"{where} is neither a folder of images here nor a list of them; {remedy}")
            images.setdefault(split, set()).update(found)
            folder.notes += [f"{file}: {key}: {entry!r} is not here, so there is no test"] * (not found)
    if not images:
        return None
    folder.splits_from = f"splits: stated in {file}"
    train, val = images.get("train", set()), images.get("val", set())
    if train == val:
        folder.splits_from = f"{file} states the same images for train and val"
        return dict.fromkeys(images.get("test", set()) - train, "test") | dict.fromkeys(train, "")
    if train & val:
        folder.notes.append(f"{file}: {len(train & val)} images are in train and in val; they are validated on only")
    return {image: split for split in SPLITS for image in images.get(split, ())}


def _resolve(folder: Folder, file: str, base: str, entry: str) -> list[str]:
    """Return the images of a folder or a list that ``data.yaml`` names, from itself, from ``path``, or on another machine."""
    for stated in (posixpath.join(base, entry), entry):
        path = PureWindowsPath(stated)
        parts = [part for part in path.parts if part != path.anchor and part not in (".", "..")]
        is_list = entry.endswith(".txt")
        ends = [parts[start:] for start in range(len(parts) if is_list or path.anchor else 1)] or [[]]
        # Of a folder on another machine, the end counts: two parts, or a split.
        for end in (end for end in ends if is_list or end == parts or len(end) > 1 or end[0] in SPLIT_WORDS):
            for place in (posixpath.join(posixpath.dirname(file), *end), "/".join(end)):
                if place in folder.paths and place.endswith(".txt"):
                    return folder.read_list(place)
                if images := [image for image in folder.images if image.startswith(f"{place}/" if place else "")]:
                    return images
    return []


def _add_line(objects: Objects, sample: Sample, where: str, words: list[str], names: Mapping[int, str]) -> list[float]:
    """Add the object of a line: the class, and a box or a polygon in fractions of the image's sides; return the fractions."""
    try:
        category, *numbers = map(float, words)
    except ValueError:
        text = " ".join(words)[:40]
        raise UserError(f"'{text}' is not a class number and the fractions of a box or a polygon") from None
    if category not in names:
        raise UserError(f"class '{words[0]}', but there are names for {', '.join(map(str, names))} only")
    if not all(-0.01 <= number <= 1.01 for number in numbers):
        raise UserError("its numbers leave 0 to 1; write them as fractions of the image's width and height")
    if is_polygon := len(numbers) >= 6 and len(numbers) % 2 == 0:
        points = np.reshape(numbers, (-1, 2))
    elif len(numbers) == 4:
        x, y, w, h = numbers
        points = np.array([[x - w / 2, y - h / 2], [x + w / 2, y + h / 2]])
    else:
        raise UserError(f"{len(numbers)} numbers after the class; a box has 4, a polygon three or more points (x, y)")
    values = (np.clip(points, 0, 1) * sample.size).ravel().tolist()
    objects.add(sample, where, names[category], *((None, [values]) if is_polygon else (values,)))
    return numbers
