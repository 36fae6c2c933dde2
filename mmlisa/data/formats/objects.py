"""Objects of all formats in COCO's form: their checks, and the data set that they make.

Polygons stay as they are: supervision's readers draw each into a mask, which takes ``objects x height x width`` bytes per image
and rounds the outline.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np

from mmlisa.datasets.annotations import find_bad_annotations, find_doubts

from ..folder import Dataset, Folder, Sample, note_problems, read_size, split_of


class Part(NamedTuple):
    """The content of a file in COCO's form, and the split of its images; empty for the split of each image's folder."""

    file: str
    split: str
    content: dict[str, Any]


def read_objects(folder: Folder, kind: str, parts: Iterable[Part]) -> Dataset:
    """Read a format of objects, and leave out what a training cannot use."""
    parts = list(parts)
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
    notes += note_problems(
        lost, len(samples) + len(lost), "images", "Put the images beside their annotations or into images/"
    )
    notes += note_problems(bad, len(objects), "objects")
    objects = [entry for sample in samples.values() for entry in sample.objects]
    if not objects:
        raise ValueError(f"{folder.root}: no image has an annotation ({kind})")
    if crowds := sum(bool(entry["iscrowd"]) for entry in objects):
        notes.append(f"training and evaluation ignore {crowds} of {len(objects)} objects: crowds, or marked difficult")
    return Dataset(folder.root, kind, "detection", classes, list(samples.values()), notes, has_masks=has_masks)


def coco_object(
    category: Any, corners: Sequence[float] | None, polygons: list | None = None, crowd: bool = False
) -> dict:
    """Return a COCO annotation from left, top, right and bottom in pixels or, without them, around its outlines."""
    outlines = [np.float32(polygon).reshape(-1, 2) for polygon in polygons or ()]
    if corners is None:
        points = np.concatenate(outlines)
        corners = [*points.min(0).tolist(), *points.max(0).tolist()]
    left, top, right, bottom = corners
    area = sum(map(cv2.contourArea, outlines)) or (right - left) * (bottom - top)
    box = [left, top, right - left, bottom - top]
    return {"category_id": category, "bbox": box, "area": area, "iscrowd": int(crowd), "segmentation": polygons or []}


def one_image(image: str, size: tuple[int, int], objects: Mapping[int, dict], names: Mapping[Any, str]) -> dict:
    """Return the COCO form of one image; ``objects`` by their numbers in the file, ``names`` of the classes by their ids."""
    return {
        "images": [{"id": 0, "file_name": image, "width": size[0], "height": size[1]}],
        "annotations": [{**entry, "id": number, "image_id": 0} for number, entry in objects.items()],
        "categories": [{"id": key, "name": name} for key, name in names.items()],
    }


def size_of(folder: Folder, file: str, image: str, stated: tuple[int, int]) -> tuple[int, int]:
    """Return the size (width, height) of an image as its annotation file states it, or else as it is read."""
    found = folder.find(image, file)
    return stated if all(stated) or not found else read_size(folder.root / found)
