"""Predictions of detectors as annotations for tools: CVAT (COCO), LabelMe and YOLO, from the entries of ``predict_pictures``.

Masks become polygons, which these tools edit: the outer outlines, without holes. An object whose mask is too small for a polygon
is written as a box.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from mmlisa.errors import UserError

Entry = Mapping[str, Any]
_LABELME = "5.5.0"  # version of the format that is written


def write_annotations(form: str, entries: Sequence[Entry], names: Sequence[str], folder: Path) -> Path:
    """Write annotations of images in the form ``'coco'``, ``'cvat'``, ``'labelme'`` or ``'yolo'``, and return where.

    Args:
        entries: of images, from :func:`mmlisa.inference.pictures.predict_pictures`.
        names: of the classes.
        folder: gets the files.

    Raises:
        UserError: the model is not a detector, or an entry is a film.
    """
    for entry in entries:
        if "instances" not in entry:
            raise UserError(f"--format {form}: {entry['source']} has no objects of an image; leave it out")
    folder.mkdir(parents=True, exist_ok=True)
    return _WRITERS[form](entries, names, folder)


def _polygons(instance: Entry) -> list[np.ndarray]:
    """Return the outlines ``[n, 2]`` of an object's mask, in pixels; none for a box."""
    if "segmentation" not in instance:
        return []
    from pycocotools.mask import decode

    found, _ = cv2.findContours(decode(instance["segmentation"]), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [outline[:, 0] for outline in found if len(outline) > 2]


def _relative_paths(entries: Sequence[Entry]) -> list[Path]:
    """Return the images' paths relative to the folder that holds them all, so that no two are alike."""
    paths = [Path(entry["source"]).absolute() for entry in entries]
    root = os.path.commonpath([path.parent for path in paths]) if paths else ""
    return [path.relative_to(root) for path in paths]


def _write_coco(entries: Sequence[Entry], names: Sequence[str], folder: Path) -> Path:
    images, annotations = [], []
    for image_id, (entry, path) in enumerate(zip(entries, _relative_paths(entries), strict=True), 1):
        images.append(dict(id=image_id, file_name=path.as_posix(), **_size(entry)))
        for instance in entry["instances"]:
            outlines = _polygons(instance)
            annotations.append(
                dict(
                    id=len(annotations) + 1,
                    image_id=image_id,
                    category_id=instance["category_id"] + 1,
                    bbox=instance["bbox"],
                    area=_area(instance),
                    iscrowd=0,
                    segmentation=[outline.flatten().tolist() for outline in outlines],
                    score=instance["score"],
                )
            )
    categories = [dict(id=index, name=name) for index, name in enumerate(names, 1)]
    target = folder / "annotations.json"
    target.write_text(json.dumps(dict(images=images, annotations=annotations, categories=categories)))
    return target


def _write_labelme(entries: Sequence[Entry], names: Sequence[str], folder: Path) -> Path:
    for entry in entries:
        shapes = []
        for number, instance in enumerate(entry["instances"]):
            x, y, width, height = instance["bbox"]
            corners = np.array([[x, y], [x + width, y + height]])
            parts = [("polygon", outline) for outline in _polygons(instance)] or [("rectangle", corners)]
            for kind, points in parts:  # group_id joins the parts of an object
                shapes.append(
                    dict(
                        label=instance["category"],
                        points=points.tolist(),
                        group_id=number if len(parts) > 1 else None,
                        shape_type=kind,
                        flags={},
                    )
                )
        size = _size(entry)
        target = folder / f"{Path(entry['picture']).stem}.json"
        content = dict(
            version=_LABELME,
            flags={},
            shapes=shapes,
            imagePath=os.path.relpath(entry["source"], folder),
            imageData=None,
            imageHeight=size["height"],
            imageWidth=size["width"],
        )
        target.write_text(json.dumps(content, indent=1))
    return folder


def _write_yolo(entries: Sequence[Entry], names: Sequence[str], folder: Path) -> Path:
    import yaml

    has_masks = any("segmentation" in instance for entry in entries for instance in entry["instances"])
    for entry, path in zip(entries, _relative_paths(entries), strict=True):
        height, width = entry["height"], entry["width"]
        lines = []
        for instance in entry["instances"]:
            outlines = _polygons(instance)
            if has_masks:  # YOLO's files have outlines or boxes; a part beside the largest cannot be written
                values = max(outlines, key=cv2.contourArea) if outlines else _corners(instance["bbox"])
                values = values / (width, height)
            else:
                x, y, w, h = instance["bbox"]
                values = np.array([(x + w / 2) / width, (y + h / 2) / height, w / width, h / height])
            lines.append(" ".join([str(instance["category_id"]), *(f"{value:.6f}" for value in np.ravel(values))]))
        target = folder / "labels" / path.with_suffix(".txt")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(f"{line}\n" for line in lines))
    target = folder / "data.yaml"
    target.write_text(yaml.safe_dump(dict(names=dict(enumerate(names)))))
    return target


def _corners(bbox: Sequence[float]) -> np.ndarray:
    x, y, width, height = bbox
    return np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]])


def _area(instance: Entry) -> float:
    if "segmentation" not in instance:
        return instance["bbox"][2] * instance["bbox"][3]
    from pycocotools.mask import area

    return float(area(instance["segmentation"]))


def _size(entry: Entry) -> dict[str, int]:
    return dict(height=entry["height"], width=entry["width"])


Writer = Callable[[Sequence[Entry], Sequence[str], Path], Path]
_WRITERS: dict[str, Writer] = {  # CVAT imports COCO's form
    "coco": _write_coco,
    "cvat": _write_coco,
    "labelme": _write_labelme,
    "yolo": _write_yolo,
}
