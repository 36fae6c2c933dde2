"""COCO's layout and Roboflow's: a JSON file per split, or one for all images."""

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

from ..folder import Dataset, Evidence, Folder, split_of
from .objects import Part, read_objects

NAME, TASKS = "COCO", ("detection",)
LAYOUT = "annotations/instances_train.json, train/*.jpg     COCO; also a *.json beside its images or beside images/"


def recognises(folder: Folder) -> Evidence | None:
    """Return the annotation files."""
    return folder.documents_with("images", "annotations", "categories")


def read(folder: Folder) -> Dataset:
    """Read the boxes and outlines."""
    return read_objects(folder, NAME, _parts(folder))


def _parts(folder: Folder) -> Iterator[Part]:
    files = recognises(folder).files
    instances = {name: content for name, content in files.items() if PurePosixPath(name).name.startswith("instances")}
    for name, content in (instances or files).items():
        for entry in content["annotations"]:
            if not entry.get("area") and entry.get("bbox"):
                entry["area"] = math.prod(entry["bbox"][2:])
        yield Part(name, split_of(name, with_name=True), content)
