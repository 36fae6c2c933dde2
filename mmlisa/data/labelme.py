"""LabelMe and its relatives: a JSON file per image, with shapes, or with flags that say the class of the image."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from .dataset import IGNORED, Dataset, Objects
from .folder import Evidence, Folder

NAME = "LabelMe"
LAYOUT = "*.json beside *.jpg                               LabelMe; also with flags as the classes of the images"


def recognises(folder: Folder) -> Evidence | None:
    files = {name: each for name, each in folder.documents_with("shapes").items() if isinstance(each["shapes"], list)}
    if not files:
        return None
    has_shapes = any(content["shapes"] for content in files.values())
    tasks = ("detection", "segmentation") * has_shapes + ("classification",) * any(map(_set_flags, files.values()))
    lacks = "" if tasks else "its JSON files have neither shapes nor flags"
    return Evidence(f"{len(files)} JSON files such as {min(files)}", lacks, tasks, files)


def read(folder: Folder, files: dict[str, Any], task: str) -> Dataset:
    objects = Objects(folder)
    names = sorted({name for content in files.values() for name in _set_flags(content)} - {IGNORED})
    for file, content in files.items():
        stated = content.get("imagePath") or ""
        image = folder.find_one(stated, file) or (file if content.get("imageData") else None)
        sample = objects.add_image(file, image, (content.get("imageWidth"), content.get("imageHeight")), stated=stated)
        if sample and task == "classification":
            if len(flags := _set_flags(content)) == 1 and flags[0] in names:
                sample.label = names.index(flags[0])
            else:
                del objects.samples[sample.split, sample.path]
                objects.lost.append((file, f"its flags {flags} are set; set the one that is the class of the image"))
            continue
        groups: dict[Any, dict[str, Any]] = {}  # shapes of one group_id are one object
        for number, shape in enumerate(content["shapes"], 1):
            where, shape_type = f"{folder.root / file}, shape {number}", shape.get("shape_type") or "polygon"
            if shape_type not in _OUTLINES:
                objects.bad.append((where, f"a {shape_type} has no area; draw a polygon or a rectangle instead"))
                continue
            try:
                label, points = str(shape["label"]), np.float64(shape["points"]).reshape(-1, 2)
                outlines = [outline.ravel().tolist() for outline in _OUTLINES[shape_type](points, shape)]
                corners = [*points.min(0).tolist(), *points.max(0).tolist()] if shape_type == "rectangle" else None
            except (KeyError, TypeError, ValueError, IndexError, cv2.error) as error:
                objects.bad.append((where, f"its points or its mask cannot be read ({error})"))
                continue
            key = number if shape.get("group_id") is None or corners else (label, shape["group_id"])
            group = groups.setdefault(key, dict(where=where, label=label, corners=corners, outlines=[], crowd=False))
            group["outlines"] += outlines
            group["crowd"] |= bool(shape.get("difficult"))  # X-AnyLabeling's
        for group in groups.values():
            objects.add(sample, **group)
    return objects.dataset(task, names) if task == "classification" else objects.finish()


def _set_flags(content: Mapping[str, Any]) -> list[str]:
    return [name for name, is_set in (content.get("flags") or {}).items() if is_set]


def _outline_mask(points: np.ndarray, shape: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the outlines of a mask: a PNG in base64, whose first pixel lies at the first point."""
    mask = cv2.imdecode(np.frombuffer(b64decode(shape["mask"]), np.uint8), cv2.IMREAD_GRAYSCALE)
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [contour[:, 0] + points[0] for contour in contours if len(contour) > 2]


def _outline_circle(points: np.ndarray, _: Mapping[str, Any]) -> list[np.ndarray]:
    """Return a circle's outline from its centre and a point on it."""
    angle = np.arange(36)[:, None] * (np.pi / 18)
    return [points[0] + np.hypot(*(points[1] - points[0])) * np.hstack([np.cos(angle), np.sin(angle)])]


# The outlines of the shapes that have an area, each ``[points, 2]``; a rectangle is a box, and points and lines are nothing.
_OUTLINES = dict.fromkeys(("polygon", "rotation", "oriented_rectangle", "quadrilateral"), lambda points, _: [points])
_OUTLINES |= {"mask": _outline_mask, "circle": _outline_circle, "rectangle": lambda points, _: []}
