"""YOLO, in Ultralytics' layout and Roboflow's: ``data.yaml``, ``images/`` and ``labels/``; boxes or polygons in fractions."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from ..folder import Dataset, Evidence, Folder, read_size
from .objects import Part, coco_object, one_image, read_objects

NAME, TASKS = "YOLO", ("detection",)
LAYOUT = "data.yaml, images/train/*.jpg, labels/train/*.txt YOLO; also train/images/*.jpg, train/labels/*.txt"


def recognises(folder: Folder) -> Evidence | None:
    """Return the file with the names of the classes."""
    return folder.documents_with("names")


def read(folder: Folder) -> Dataset:
    """Read the boxes and outlines."""
    return read_objects(folder, NAME, _parts(folder))


def _parts(folder: Folder) -> Iterator[Part]:
    (name, content), *more = recognises(folder).files.items()
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
        yield Part(label if lines else image, "", one_image(image, size, objects, names))


def _yolo_object(words: list[str], size: tuple[int, int]) -> dict[str, Any]:
    """Return the COCO annotation of a line: the class, and a box or a polygon in fractions of ``size`` (width, height)."""
    category, numbers = int(words[0]), [float(word) for word in words[1:]]
    if not all(-0.01 <= number <= 1.01 for number in numbers):
        raise ValueError("its numbers leave 0 to 1; write them as fractions of the image's width and height")
    if len(numbers) >= 6 and len(numbers) % 2 == 0:
        return coco_object(category, None, [(np.clip(numbers, 0, 1).reshape(-1, 2) * size).ravel().tolist()])
    if len(numbers) != 4:
        raise ValueError(
            f"{len(numbers)} numbers after the class; a box has 4, and a polygon three or more points (x, y)"
        )
    x, y, w, h = numbers
    corners = np.clip([[x - w / 2, y - h / 2], [x + w / 2, y + h / 2]], 0, 1) * size
    return coco_object(category, corners.ravel().tolist())
