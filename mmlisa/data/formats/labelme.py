"""LabelMe: a JSON file per image, with polygons, masks, circles and rectangles; shapes of one ``group_id`` are one object."""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

import cv2
import numpy as np

from ..folder import Dataset, Evidence, Folder
from .objects import Part, coco_object, one_image, read_objects, size_of

NAME, TASKS = "LabelMe", ("detection",)
LAYOUT = "*.json beside *.jpg                               LabelMe"


def recognises(folder: Folder) -> Evidence | None:
    """Return the annotation files."""
    return folder.documents_with("shapes", "imagePath")


def read(folder: Folder) -> Dataset:
    """Read the boxes and outlines."""
    return read_objects(folder, NAME, _parts(folder))


def _parts(folder: Folder) -> Iterator[Part]:
    files = recognises(folder).files
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
                objects[number] = coco_object(label, [*points.min(0).tolist(), *points.max(0).tolist()])
            elif kind in _OUTLINES:
                group = (label, number if shape.get("group_id") is None else f"group {shape['group_id']}")
                parts = [outline.ravel().tolist() for outline in _OUTLINES[kind](points, shape)]
                outlines.setdefault(group, []).extend(parts)
                objects[first.setdefault(group, number)] = coco_object(label, None, outlines[group])
        image = content["imagePath"]
        size = size_of(folder, file, image, (content.get("imageWidth"), content.get("imageHeight")))
        yield Part(file, "", one_image(image, size, objects, names))


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
