"""Readers of the usual annotation formats.

The readers of objects turn their files into COCO's form, and :func:`_read_objects` checks it. Polygons stay as they are:
supervision's readers draw each into a mask, which takes ``objects x height x width`` bytes per image and rounds the outline.
"""

import json
import math
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from xml.etree import ElementTree

import cv2
import numpy as np
import yaml
from PIL import Image

from mmlisa.datasets.annotations import find_bad_annotations, find_doubts

from .folder import Dataset, Folder, Sample, is_image_word, is_map_word, note_problems, read_size, split_of

EXPECTED = """Expected one of:
  annotations/instances_train.json, train/*.jpg     COCO; also a *.json beside its images or beside images/
  data.yaml, images/train/*.jpg, labels/train/*.txt YOLO; also train/images/*.jpg, train/labels/*.txt
  Annotations/*.xml, JPEGImages/*.jpg               Pascal VOC; also each *.xml beside its image
  *.json beside *.jpg                               LabelMe
  images/*.jpg, masks/*.png, classes.txt            class maps
  train/<class>/*.jpg, val/<class>/*.jpg            class folders; also <class>/*.jpg
Without the splits train, val and test, a fifth of the images is drawn for validation."""
_MOST_CLASSES = 182  # COCO-Stuff's number; class maps with higher values and 255 are masks with soft edges


def read(root: str | Path, task: str = "") -> Dataset:
    """Recognise the format of a folder and read it.

    Args:
        root: the folder.
        task: ``'detection'``, ``'segmentation'`` or ``'classification'``; if empty, the first of them that the folder holds.

    Raises:
        ValueError: the folder holds no annotations or several formats, or more than a tenth of the entries cannot be used.
        FileNotFoundError: the folder does not exist.
    """
    folder, dataset = Folder(root), None
    if task in ("", "detection") and (found := _annotation_files(folder)):
        dataset = _read_objects(folder, found)
    elif task in ("", "segmentation") and (pairs := _pair_maps(folder)):
        dataset = _read_class_maps(folder, pairs)
    elif task in ("", "classification") and (labels := _class_folders(folder)):
        dataset = _read_class_folders(folder, labels)
    else:
        what = f"annotations for {task}" if task else "annotations"
        raise ValueError(f"{root} holds {len(folder.images)} images, but no {what} in a known place. {EXPECTED}")
    unassigned = dataset.split("")
    if unassigned and (dataset.split("train") or dataset.split("val")):  # images beside a test alone are trained on
        dataset.samples = [sample for sample in dataset.samples if sample.split]
        dataset.notes.append(
            f"{folder.root / unassigned[0].path}: this image is in no split; all {len(unassigned)} such images are left out"
        )
    return dataset


# --- objects: boxes and outlines ---------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """The content of a file in COCO's form, and the split of its images; empty for the split of each image's folder."""

    file: str
    split: str
    content: dict[str, Any]


def _annotation_files(folder: Folder) -> dict[str, dict[str, Any]]:
    """Return the parsed annotation files of each format of objects that the folder holds, by name."""
    found: dict[str, dict[str, Any]] = {}
    for name in folder.files(".json", ".xml", ".yaml", ".yml"):
        parse = {".json": json.loads, ".xml": ElementTree.fromstring}.get(Path(name).suffix.lower(), yaml.safe_load)
        try:
            content = parse(folder.text(name))
        except (ValueError, ElementTree.ParseError, yaml.YAMLError) as error:
            raise ValueError(f"{folder.root / name} cannot be read ({error}); export it again") from error
        keys = set(content) if isinstance(content, dict) else {getattr(content, "tag", "")}
        kind = next((kind for kind, (_, needed) in _READERS.items() if needed <= keys), None)
        if kind:
            found.setdefault(kind, {})[name] = content
        if kind == "LabelMe":
            content.pop("imageData", None)  # the image itself; of all files it could fill the memory
    return found


def _read_objects(folder: Folder, found: Mapping[str, Mapping[str, Any]]) -> Dataset:
    """Read a format of objects, and leave out what a training cannot use."""
    if len(found) > 1:
        listed = "; ".join(f"{name}: {next(iter(files))}" for name, files in found.items())
        raise ValueError(f"{folder.root} holds annotations in several formats ({listed}); keep one of them")
    ((kind, files),) = found.items()
    parts = list(_READERS[kind][0](folder, files))
    objects = [entry for part in parts for entry in part.content["annotations"]]
    has_masks = 2 * sum(bool(entry.get("segmentation")) for entry in objects) > len(objects)
    classes: list[str] = []
    samples: dict[tuple[str, str], Sample] = {}
    lost, bad, notes = [], [], []
    for file, split, content in parts:
        path, by_id = folder.root / file, {}
        try:
            reasons = find_bad_annotations(content, has_masks)
        except ValueError as error:
            raise ValueError(f"{path}: {error}; export it again") from error
        # An object without an outline gets that of its box.
        reasons = {number: reason for number, reason in reasons.items() if reason != "it has no segmentation"}
        bad += [f"{path}, object {number}: {reason}" for number, reason in reasons.items()]
        notes += [f"warning: {path}: {doubt}" for doubt in find_doubts(content)] if kind == "COCO" else []
        names = {category["id"]: str(category["name"]) for category in content["categories"]}
        classes = list(dict.fromkeys([*classes, *(names[key] for key in sorted(names))]))
        for image in content["images"]:
            name = folder.find(image["file_name"], file)
            if name is None:
                lost.append(f"{path}: its image {image['file_name']!r} is missing")
                continue
            sample = Sample(name, split or split_of(name), (int(image["width"]), int(image["height"])))
            if samples.setdefault((sample.split, name), sample) is not sample:
                raise ValueError(f"{path}: {name} is annotated twice; keep one of both entries")
            by_id[image["id"]] = sample
        for entry in content["annotations"]:
            if entry["id"] not in reasons and entry["image_id"] in by_id:
                kept = {"bbox": entry["bbox"], "area": entry["area"], "iscrowd": entry.get("iscrowd", 0)}
                if has_masks:
                    x, y, w, h = entry["bbox"]
                    kept["segmentation"] = entry.get("segmentation") or [[x, y, x + w, y, x + w, y + h, x, y + h]]
                kept["category_id"] = classes.index(names[entry["category_id"]])
                by_id[entry["image_id"]].objects.append(kept)
    notes += note_problems(lost, len(samples) + len(lost), "images", EXPECTED)
    notes += note_problems(bad, len(objects), "objects")
    objects = [entry for sample in samples.values() for entry in sample.objects]
    if not objects:
        raise ValueError(f"{folder.root}: no image has an annotation ({kind}). {EXPECTED}")
    if crowds := sum(bool(entry["iscrowd"]) for entry in objects):
        notes.append(f"training and evaluation ignore {crowds} of {len(objects)} objects: crowds, or marked difficult")
    return Dataset(folder.root, kind, "detection", classes, list(samples.values()), notes, has_masks=has_masks)


def _object(category: Any, corners: Sequence[float] | None, polygons: list | None = None, crowd: bool = False) -> dict:
    """Return a COCO annotation from left, top, right and bottom in pixels or, without them, around its outlines."""
    outlines = [np.float32(polygon).reshape(-1, 2) for polygon in polygons or ()]
    if corners is None:
        points = np.concatenate(outlines)
        corners = [*points.min(0).tolist(), *points.max(0).tolist()]
    left, top, right, bottom = corners
    area = sum(map(cv2.contourArea, outlines)) or (right - left) * (bottom - top)
    box = [left, top, right - left, bottom - top]
    return {"category_id": category, "bbox": box, "area": area, "iscrowd": int(crowd), "segmentation": polygons or []}


def _one_image(image: str, size: tuple[int, int], objects: Mapping[int, dict], names: Mapping[Any, str]) -> dict:
    """Return the COCO form of one image; ``objects`` by their numbers in the file, ``names`` of the classes by their ids."""
    return {
        "images": [{"id": 0, "file_name": image, "width": size[0], "height": size[1]}],
        "annotations": [{**entry, "id": number, "image_id": 0} for number, entry in objects.items()],
        "categories": [{"id": key, "name": name} for key, name in names.items()],
    }


def _read_coco(folder: Folder, files: Mapping[str, Any]) -> Iterator[_Part]:
    """COCO's layout and Roboflow's: a file per split, or one for all images."""
    instances = {name: content for name, content in files.items() if PurePosixPath(name).name.startswith("instances")}
    for name, content in (instances or files).items():
        for entry in content["annotations"]:
            if not entry.get("area") and entry.get("bbox"):
                entry["area"] = math.prod(entry["bbox"][2:])
        yield _Part(name, split_of(name, with_name=True), content)


def _read_yolo(folder: Folder, files: Mapping[str, Any]) -> Iterator[_Part]:
    """Ultralytics' layout and Roboflow's: ``data.yaml``, ``images/`` and ``labels/``; boxes or polygons in fractions."""
    (name, content), *more = files.items()
    if more:
        raise ValueError(f"{folder.root} holds {name} and {more[0][0]}, both with names; keep one of them")
    names = content["names"] if isinstance(content["names"], dict) else dict(enumerate(content["names"]))
    last = 5 if "kpt_shape" in content else None  # the class and its box, without keypoints
    for image in folder.images:
        *parents, file = PurePosixPath(image).parts
        if "images" in parents:
            parents[len(parents) - 1 - parents[::-1].index("images")] = "labels"
        label = PurePosixPath(*parents, file).with_suffix(".txt").as_posix()
        size, objects = read_size(folder.root / image), {}
        lines = folder.text(label).splitlines() if (folder.root / label).is_file() else []
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    objects[number] = _yolo_object(line.split()[:last], size)
                except ValueError as error:
                    raise ValueError(f"{folder.root / label}, line {number}: {error}") from error
        yield _Part(label if lines else image, "", _one_image(image, size, objects, names))


def _yolo_object(words: list[str], size: tuple[int, int]) -> dict[str, Any]:
    """Return the COCO annotation of a line: the class, and a box or a polygon in fractions of ``size`` (width, height)."""
    category, numbers = int(words[0]), [float(word) for word in words[1:]]
    if not all(-0.01 <= number <= 1.01 for number in numbers):
        raise ValueError("its numbers leave 0 to 1; write them as fractions of the image's width and height")
    if len(numbers) >= 6 and len(numbers) % 2 == 0:
        return _object(category, None, [(np.clip(numbers, 0, 1).reshape(-1, 2) * size).ravel().tolist()])
    if len(numbers) != 4:
        raise ValueError(
            f"{len(numbers)} numbers after the class; a box has 4, and a polygon three or more points (x, y)"
        )
    x, y, w, h = numbers
    corners = np.clip([[x - w / 2, y - h / 2], [x + w / 2, y + h / 2]], 0, 1) * size
    return _object(category, corners.ravel().tolist())


def _read_voc(folder: Folder, files: Mapping[str, Any]) -> Iterator[_Part]:
    """Pascal VOC: an XML file per image; ``ImageSets/Main/*.txt`` are its splits. Objects marked difficult become crowds."""
    listed = _listed_splits(folder, "Main")
    names = sorted({entry.findtext("name", "") for root in files.values() for entry in root.iter("object")})
    for name, root in files.items():
        stem, objects = PurePosixPath(name).stem, {}
        for number, entry in enumerate(root.iter("object"), 1):
            corners = [float(entry.findtext(f"bndbox/{side}", "nan")) for side in ("xmin", "ymin", "xmax", "ymax")]
            # The format counts pixels from 1, and includes the last.
            corners = [max(0, corners[0] - 1), max(0, corners[1] - 1), *corners[2:]]
            is_crowd = entry.findtext("difficult") == "1"
            objects[number] = _object(entry.findtext("name", ""), corners, crowd=is_crowd)
        image, stated = root.findtext("filename", ""), [root.findtext(f"size/{x}") or 0 for x in ("width", "height")]
        size = _size_of(folder, name, image, tuple(map(int, stated)))
        content = _one_image(image, size, objects, dict(zip(names, names, strict=True)))
        yield _Part(name, listed.get(stem, ""), content)


def _size_of(folder: Folder, file: str, image: str, stated: tuple[int, int]) -> tuple[int, int]:
    """Return the size (width, height) of an image as its annotation file states it, or else as it is read."""
    found = folder.find(image, file)
    return stated if all(stated) or not found else read_size(folder.root / found)


def _listed_splits(folder: Folder, kind: str) -> dict[str, str]:
    """Return the splits of Pascal VOC's images by their stems, from the lists in ``ImageSets/<kind>``."""
    lists = [f"ImageSets/{kind}/{name}.txt" for name in ("trainval", "train", "val", "test")]  # the last ones prevail
    found = [path for each in lists for path in folder.files(".txt") if f"/{path}".endswith(f"/{each}")]
    return {
        line.split()[0]: split_of(path, with_name=True)
        for path in found
        for line in folder.text(path).splitlines()
        if line.strip()
    }


def _read_labelme(folder: Folder, files: Mapping[str, Any]) -> Iterator[_Part]:
    """LabelMe: a JSON file per image, with polygons, masks, circles and rectangles; shapes of one ``group_id`` are one object."""
    labels = {str(shape["label"]) for content in files.values() for shape in content["shapes"]}
    names = {name: name for name in sorted(labels)}
    for file, content in files.items():
        objects: dict[int, dict] = {}
        outlines: dict[Any, list[list[float]]] = {}
        first: dict[Any, int] = {}
        for number, shape in enumerate(content["shapes"]):
            points = np.array(shape["points"], float).reshape(-1, 2)
            kind, label = shape.get("shape_type") or "polygon", str(shape["label"])
            if kind == "rectangle":
                objects[number] = _object(label, [*points.min(0).tolist(), *points.max(0).tolist()])
            elif kind in _OUTLINES:
                group = (label, number if shape.get("group_id") is None else f"group {shape['group_id']}")
                parts = [outline.ravel().tolist() for outline in _OUTLINES[kind](points, shape)]
                outlines.setdefault(group, []).extend(parts)
                objects[first.setdefault(group, number)] = _object(label, None, outlines[group])
        image = content["imagePath"]
        size = _size_of(folder, file, image, (content.get("imageWidth"), content.get("imageHeight")))
        yield _Part(file, "", _one_image(image, size, objects, names))


def _outline_mask(points: np.ndarray, shape: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the outlines of a mask: a PNG in base64, whose first pixel lies at the first point."""
    mask = cv2.imdecode(np.frombuffer(b64decode(shape["mask"]), np.uint8), cv2.IMREAD_GRAYSCALE)
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [contour[:, 0] + points[0] for contour in contours if len(contour) > 2]


def _outline_circle(points: np.ndarray, _: Mapping[str, Any]) -> list[np.ndarray]:
    """Return a circle's outline from its centre and a point on it."""
    angle = np.arange(36)[:, None] * (np.pi / 18)
    return [points[0] + np.hypot(*(points[1] - points[0])) * np.hstack([np.cos(angle), np.sin(angle)])]


# The outlines of LabelMe's shapes, each ``[points, 2]``; points and lines have no area.
_OUTLINES = {"polygon": lambda points, _: [points], "mask": _outline_mask, "circle": _outline_circle}

# The reader of each format, and the keys (of XML, the tag) by which its files are known.
_READERS = {
    "COCO": (_read_coco, {"images", "annotations", "categories"}),
    "LabelMe": (_read_labelme, {"shapes", "imagePath"}),
    "YOLO": (_read_yolo, {"names"}),
    "Pascal VOC": (_read_voc, {"annotation"}),
}


# --- class maps and class folders --------------------------------------------------------------------------------------------


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


def _read_class_maps(folder: Folder, pairs: Mapping[str, str]) -> Dataset:
    """Class maps: a picture of class numbers for each image; 255 is not annotated, or the object in masks of 0 and 255.

    Raises:
        ValueError: more than a tenth of the maps cannot be used, or the classes do not explain the values.
    """
    samples, problems, values = [], [], set()
    listed = _listed_splits(folder, "Segmentation")
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
    return Dataset(folder.root, "class maps", "segmentation", classes, samples, notes, label_map=label_map)


def _class_folders(folder: Folder) -> dict[str, tuple[str, str]]:
    """Return the split and the class of each image; empty if there are not two classes."""
    paths = {image: PurePosixPath(image).parts for image in folder.images}
    has_splits = any(len(parts) > 2 and split_of(f"{parts[0]}/x") for parts in paths.values())
    found = {
        image: (split_of(f"{parts[0]}/x") if has_splits else "", parts[has_splits])
        for image, parts in paths.items()
        if len(parts) > 1 + has_splits and bool(split_of(f"{parts[0]}/x")) == has_splits
    }
    classes = {name for _, name in found.values()}
    kinds = [name for name in classes if is_image_word(name.lower()) or is_map_word(name.lower())]
    return found if len(classes) > 1 and not kinds else {}


def _read_class_folders(folder: Folder, labels: Mapping[str, tuple[str, str]]) -> Dataset:
    """Class folders, under ``train/`` and ``val/`` where there are splits; classes are those of the training."""
    named = {name for split, name in labels.values() if split == "train"} or {name for _, name in labels.values()}
    classes = sorted(named)
    samples = [Sample(i, split, label=classes.index(name)) for i, (split, name) in labels.items() if name in named]
    dataset = Dataset(folder.root, "class folders", "classification", classes, samples)
    if outside := len(folder.images) - len(samples):
        dataset.notes.append(f"{outside} images outside of the class folders (those in train, if any) are left out")
    return dataset
