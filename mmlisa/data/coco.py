"""COCO's layout and Roboflow's: a JSON file per split, or one for all images."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from mmlisa.errors import UserError

from .dataset import Dataset, Objects
from .folder import SPLITS, Evidence, Folder, split_of

NAME = "COCO"
LAYOUT = "annotations/instances_train.json, train/*.jpg     COCO; also a *.json beside its images or beside images/"


def recognises(folder: Folder) -> Evidence | None:
    files = folder.documents_with("images", "annotations")
    files = {name: each for name, each in files.items() if PurePosixPath(name).name.startswith("instances")} or files
    for name, content in files.items():
        if "categories" not in content or any("segments_info" in entry for entry in content["annotations"][:1]):
            return Evidence(name, f"{name} has no boxes with categories; give COCO's file of instances")
    return Evidence(", ".join(files), content=files) if files else None


def read(folder: Folder, files: dict[str, Any], task: str) -> Dataset:
    splits = {name: split_of(name, with_name=True) for name in files}
    nameless = [name for name, split in splits.items() if not split]
    words = f"none of the words {', '.join(SPLITS)} in its name"
    if nameless and len(nameless) < len(files):
        raise UserError(f"{folder.root / nameless[0]} has {words}, unlike other files; rename it, or move it away")
    if len(nameless) > 1:
        folder.notes.append(f"{', '.join(nameless)} are taken together, because each has {words}")
    objects, classes = Objects(folder), []
    are_brushed = _are_brushed([entry for content in files.values() for entry in content["annotations"]])
    if are_brushed:
        folder.notes.append("all run-length masks have iscrowd 1, as CVAT's brush masks do; they are taken as objects")
    for file, content in files.items():
        try:
            classes += _read_file(objects, file, splits[file], content, are_brushed)
        except (KeyError, TypeError, AttributeError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else f"has an unexpected form ({error})"
            raise UserError(f"{folder.root / file}: an entry {what}; export it again") from error
    return objects.finish(classes)


def _read_file(objects: Objects, file: str, split: str, content: Mapping[str, Any], are_brushed: bool) -> list[str]:
    """Add the images and objects of a file; return its classes.

    Ids are compared as text, because scripts mix both; those of annotations do not matter.
    """
    path = objects.folder.root / file
    images = {str(image["id"]): image for image in content["images"]}
    names = {str(category["id"]): str(category["name"]) for category in content["categories"]}
    if len(images) < len(content["images"]) or len(names) < len(content["categories"]):
        raise UserError(f"{path}: an id of its images or categories is used twice; give each its own id")
    paths = objects.folder.find([image["file_name"] for image in images.values()], file)
    samples = {
        key: objects.add_image(file, name, (image.get("width"), image.get("height")), split, image["file_name"])
        for (key, image), name in zip(images.items(), paths, strict=True)
    }
    for number, entry in enumerate(content["annotations"], 1):
        where, mask = f"{path}, object {entry.get('id', number)}", entry.get("segmentation")
        image, category = str(entry["image_id"]), str(entry["category_id"])
        if image not in images:
            objects.bad.append((where, f"no image has image_id '{image}'"))
        elif category not in names:
            objects.bad.append((where, f"no category has category_id '{category}'"))
        else:
            try:
                x, y, w, h = map(float, entry["bbox"])
                area, is_crowd = float(entry.get("area") or 0), _is_crowd(entry)
            except (TypeError, ValueError, KeyError):
                given = {key: entry.get(key) for key in ("bbox", "area", "iscrowd")}
                objects.bad.append((where, f"{given} must be numbers, bbox (x, y, width, height)"))
                continue
            is_crowd &= not (are_brushed and isinstance(mask, Mapping))
            objects.add(samples[image], where, names[category], (x, y, x + w, y + h), mask, is_crowd, area)
    return list(names.values())


def _is_crowd(entry: Mapping[str, Any]) -> bool:
    return bool(int(float(entry.get("iscrowd") or 0)))


def _are_brushed(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the run lengths that are crowds are CVAT's brush masks, that is, objects.

    COCO's own files have crowds as run lengths, too, but beside polygons. CVAT's entries have attributes.
    """
    masks = [entry for entry in entries if isinstance(entry.get("segmentation"), Mapping)]
    try:
        crowds = [entry for entry in entries if _is_crowd(entry)]
    except (TypeError, ValueError):
        return False
    return masks == crowds != [] and (len(masks) == len(entries) or all("attributes" in entry for entry in masks))
