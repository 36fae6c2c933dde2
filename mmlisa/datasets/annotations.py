"""What can be wrong with COCO annotations, each with the id of its annotation or image."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np

_PARTS = ("images", "annotations", "categories")
_MAX_SIDE = 100_000  # pixels; no decoder reads larger images


class Problem(NamedTuple):
    """One bad entry of an annotation file: in which list it is, its place there, its id, and what is wrong."""

    part: str
    index: int
    id: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.part.removesuffix('s')} {self.id!r}: {self.reason}"


def find_problems(coco: Mapping[str, Any], with_mask: bool = True) -> list[Problem]:
    """Looks at every image and annotation of a COCO file.

    Args:
        coco: the parsed file.
        with_mask: whether every annotation needs a segmentation.

    Returns:
        The entries that a training cannot use, in the order of the file.

    Raises:
        ValueError: the file as a whole is no COCO file.
    """
    if not isinstance(coco, Mapping) or not all(isinstance(coco.get(part), list) for part in _PARTS):
        raise ValueError(f"it is no dict with the lists {', '.join(_PARTS)}")
    for part in _PARTS:
        if not all(isinstance(entry, Mapping) and "id" in entry for entry in coco[part]):
            raise ValueError(f"an entry of {part} is no dict with an id")
    for category in coco["categories"]:
        if not _is_id(category["id"]) or not isinstance(category.get("name"), str):
            raise ValueError(f"the category {dict(category)!r} has no id or no name")
    return [*_bad_images(coco["images"]), *_bad_annotations(coco, with_mask)]


def without(coco: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """A copy without the bad entries, and without the annotations of bad images."""
    bad = {(problem.part, problem.index) for problem in problems}
    kept = {part: [e for i, e in enumerate(coco[part]) if (part, i) not in bad] for part in ("images", "annotations")}
    images = {image["id"] for image in kept["images"]}
    kept["annotations"] = [entry for entry in kept["annotations"] if entry["image_id"] in images]
    return {**coco, **kept}


def _bad_images(images: Sequence[Mapping]) -> Iterator[Problem]:
    seen = set()
    for index, image in enumerate(images):
        reason = _image_reason(image)
        if reason is None:
            reason = "its id is used twice" if image["id"] in seen else None
            seen.add(image["id"])
        if reason:
            yield Problem("images", index, image["id"], reason)


def _image_reason(image: Mapping) -> str | None:
    if not _is_id(image["id"]):
        return "its id is neither a number nor text"
    name = image.get("file_name")
    if not isinstance(name, str) or not name:
        return f"file_name is {name!r}"
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive:
        return f"file_name {name!r} is absolute; it must be relative to the image folder"
    if ".." in PureWindowsPath(name).parts:
        return f"file_name {name!r} leaves the image folder"
    sides = image.get("width"), image.get("height")
    if not (_is_number(*sides) and min(sides) > 0 and max(sides) <= _MAX_SIDE):
        return f"size {image.get('width')!r} x {image.get('height')!r} ({name})"
    return None


def _bad_annotations(coco: Mapping[str, Any], with_mask: bool) -> Iterator[Problem]:
    images = {image["id"]: image for image in coco["images"] if _image_reason(image) is None}
    known = {image["id"] for image in coco["images"] if _is_id(image["id"])}
    categories = {category["id"] for category in coco["categories"]}
    seen = set()
    for index, entry in enumerate(coco["annotations"]):
        if not _is_id(entry["id"]):
            reason = "its id is neither a number nor text"
        elif not _is_id(entry.get("image_id")) or entry["image_id"] not in known:
            reason = f"no image has image_id {entry.get('image_id')!r}"
        elif entry["image_id"] not in images:
            continue  # goes with its image
        elif entry["id"] in seen:
            reason = "its id is used twice"
        elif not _is_id(entry.get("category_id")) or entry["category_id"] not in categories:
            reason = f"no category has category_id {entry.get('category_id')!r}"
        else:
            image = images[entry["image_id"]]
            reason = _box_reason(entry, image) or (_mask_reason(entry, image) if with_mask else None)
            reason = reason and f"{reason} ({image['file_name']})"
        if _is_id(entry["id"]):
            seen.add(entry["id"])
        if reason:
            yield Problem("annotations", index, entry["id"], reason)


def _box_reason(entry: Mapping, image: Mapping) -> str | None:
    box = entry.get("bbox")
    if not isinstance(box, list | tuple) or len(box) != 4 or not _is_number(*box):
        return f"bbox is {box!r}; it must be four finite numbers (x, y, width, height)"
    x, y, width, height = box
    if width < 1 or height < 1:
        return f"bbox {box!r} is smaller than a pixel"
    if min(x + width, image["width"]) <= max(x, 0) or min(y + height, image["height"]) <= max(y, 0):
        return f"bbox {box!r} lies outside of the image"
    if not _is_number(entry.get("area")) or entry["area"] <= 0:
        return f"area is {entry.get('area')!r}"
    return None


def _mask_reason(entry: Mapping, image: Mapping) -> str | None:
    mask, height, width = entry.get("segmentation"), int(image["height"]), int(image["width"])
    if not mask:
        return "it has no segmentation" if mask is None else "its segmentation is empty"
    if isinstance(mask, Mapping):
        if mask.get("size") not in ([height, width], (height, width)):
            return f"its RLE is of size {mask.get('size')!r}, the image of {[height, width]}"
        counts = mask.get("counts")
        if isinstance(counts, list):
            if not (_is_number(*counts) and all(run >= 0 for run in counts) and sum(counts) == height * width):
                return f"the runs of its RLE do not add up to {height * width} pixels"
            return None if sum(counts[1::2]) else "its RLE holds no pixel"
        return _decoded_reason(mask, height, width)
    if not isinstance(mask, list) or not all(isinstance(polygon, list) for polygon in mask):
        return f"its segmentation is a {type(mask).__name__}; it must be polygons or an RLE"
    for polygon in mask:
        if len(polygon) < 6 or len(polygon) % 2 or not _is_number(*polygon):
            return f"a polygon of its segmentation has {len(polygon)} numbers; it needs three or more points (x, y), finite"
        # Drawing takes memory and time by the length of the outline.
        if not (_is_within(polygon[0::2], width) and _is_within(polygon[1::2], height)):
            return "a polygon of its segmentation reaches far out of the image"
    # Whether a small polygon hits a pixel, only drawing it tells.
    if sum(_visible_area(polygon, height, width) for polygon in mask) < 4:
        return _decoded_reason(mask, height, width)
    return None


def _decoded_reason(mask: Any, height: int, width: int) -> str | None:
    from pycocotools import mask as masks

    try:
        rle = masks.frPyObjects(mask, height, width) if isinstance(mask, list) else [mask]
        return None if masks.area(rle).sum() else "its mask holds no pixel of the image"
    except (TypeError, ValueError, AttributeError) as error:
        return f"its segmentation cannot be read: {error}"


def _is_within(points: Sequence[float], side: int) -> bool:
    """Whether the points lie within the image, or no further beside it than it is long."""
    return -side <= min(points) and max(points) <= 2 * side


def _visible_area(polygon: Sequence[float], height: int, width: int) -> float:
    """The area of a polygon after clamping its points to the image."""
    x = np.clip(polygon[0::2], 0, width)
    y = np.clip(polygon[1::2], 0, height)
    return abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_number(*values: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)


def summarize(problems: Sequence[Problem], most: int = 5) -> str:
    """A line: how many of each part, and the first of them."""
    counts = Counter(problem.part for problem in problems)
    shown = "; ".join(map(str, problems[:most])) + ("; …" if len(problems) > most else "")
    return f"{' and '.join(f'{number} bad {part}' for part, number in counts.items())}: {shown}"
