"""Checks of COCO annotations that name every bad entry by its id."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from reprlib import repr as short
from typing import Any, NamedTuple

import cv2
import numpy as np

_PARTS = ("images", "annotations", "categories")
_MAX_SIDE = 100_000  # pixels; no decoder reads larger images
MOST_OUTSIDE = 0.1  # share of boxes that reach outside their image; more than that means another box format


class Problem(NamedTuple):
    """One bad entry of an annotation file: its list, its place and id there, the reason, and the image file if known."""

    part: str
    index: int
    id: Any
    reason: str
    file: str = ""

    def __str__(self) -> str:
        file = f" ({self.file})" if self.file else ""
        return f"{self.part.removesuffix('s')} {short(self.id)}: {self.reason}{file}"


def find_problems(coco: Mapping[str, Any], with_mask: bool = True) -> list[Problem]:
    """Check every image and annotation of a parsed COCO file; ``with_mask``: every annotation needs a segmentation.

    Returns:
        The entries that a training cannot use, in the order of the file.

    Raises:
        ValueError: the file as a whole is not a COCO file.
    """
    if not isinstance(coco, Mapping) or not all(isinstance(coco.get(part), list) for part in _PARTS):
        raise ValueError(f"it is not a dict with the lists {', '.join(_PARTS)}")
    for part in _PARTS:
        if not all(isinstance(entry, Mapping) and "id" in entry for entry in coco[part]):
            raise ValueError(f"an entry of {part} is not a dict with an id")
    seen = set()
    for category in coco["categories"]:
        if not _is_id(category["id"]) or not isinstance(category.get("name"), str):
            raise ValueError(f"the category {short(category)} has no id or no name")
        if not _is_encodable(category["name"]):
            raise ValueError(f"the category name {short(category['name'])} contains invalid characters")
        if category["id"] in seen:
            raise ValueError(f"the category id {short(category['id'])} is used twice: give each category its own id")
        seen.add(category["id"])
    return [*_bad_images(coco["images"]), *_bad_annotations(coco, with_mask)]


def without(coco: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """Return a copy without the bad entries and without the annotations of bad images."""
    bad = {(problem.part, problem.index) for problem in problems}
    kept = {part: [e for i, e in enumerate(coco[part]) if (part, i) not in bad] for part in ("images", "annotations")}
    images = {image["id"] for image in kept["images"]}
    kept["annotations"] = [entry for entry in kept["annotations"] if entry["image_id"] in images]
    return {**coco, **kept}


def summarize(problems: Sequence[Problem], most: int = 5) -> str:
    """Return one line with the number of problems in each part and the first problems."""
    counts = Counter(problem.part for problem in problems)
    shown = "; ".join(map(str, problems[:most])) + ("; …" if len(problems) > most else "")
    return f"{' and '.join(f'{number} bad {part}' for part, number in counts.items())}: {shown}"


def find_crowded(coco: Mapping[str, Any]) -> list[str]:
    """Return the classes of which more than half of the annotations, and at least two, are crowds; of a file without problems.

    CVAT exports every mask as a crowd (``iscrowd=1``). Detectors neither train on crowds nor are they tested on them. In COCO
    itself, a few per cent of a class are crowds.
    """
    names = {category["id"]: category["name"] for category in coco["categories"]}
    counts = Counter(names[entry["category_id"]] for entry in coco["annotations"])
    crowds = Counter(names[entry["category_id"]] for entry in coco["annotations"] if entry.get("iscrowd"))
    return [name for name, number in crowds.items() if number > 1 and 2 * number > counts[name]]


def share_outside(coco: Mapping[str, Any]) -> float:
    """Return the share of boxes that reach more than a pixel outside their image, of a file that `find_problems` accepts.

    A large share means that the boxes are (x1, y1, x2, y2) instead of (x, y, width, height).
    """
    images = {image["id"]: image for image in coco["images"] if _image_reason(image) is None}
    outside = []
    for entry in coco["annotations"]:
        image = images.get(entry.get("image_id")) if _is_id(entry.get("image_id")) else None
        box = entry.get("bbox")
        if image and _is_box(box):
            outside.append(box[0] + box[2] > image["width"] + 1 or box[1] + box[3] > image["height"] + 1)
    return sum(outside) / len(outside) if outside else 0.0


def read_runs(counts: str | bytes) -> list[int] | None:
    """Return the run lengths of COCO's compressed RLE; None if the string is invalid.

    The encoding is that of ``rleFrString`` in pycocotools: a character holds five bits of a number and one that says whether the
    number continues. From the fourth run on, a number is the difference to the run before the last.
    """
    if isinstance(counts, str):
        counts = counts.encode("utf-8", "surrogatepass")
    codes = np.frombuffer(counts, np.uint8).astype(np.int64) - 48
    if not len(codes):
        return []
    last = (codes & 32) == 0
    if codes.min() < 0 or codes.max() > 63 or not last[-1]:
        return None
    starts = np.flatnonzero(np.append(True, last[:-1]))
    lengths = np.diff(np.append(starts, len(codes)))
    if lengths.max() > 7:  # 35 bits; no image is that large
        return None
    digit = np.arange(len(codes)) - np.repeat(starts, lengths)
    numbers = np.add.reduceat((codes & 31) << (5 * digit), starts)
    negative = (codes[last] & 16) > 0
    numbers -= negative.astype(np.int64) << (5 * lengths)
    for first in (1, 2):
        numbers[first::2] = np.cumsum(numbers[first::2])
    return numbers.tolist()


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
        return "its id is neither an integer nor a string"
    name = image.get("file_name")
    if not isinstance(name, str) or not name:
        return f"file_name is {short(name)}"
    if "\0" in name or not _is_encodable(name):
        return f"file_name {short(name)} contains characters that no file name can have"
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive:
        return f"file_name {short(name)} is absolute; it must be relative to the image folder"
    if ".." in PureWindowsPath(name).parts:
        return f"file_name {short(name)} leaves the image folder"
    sides = image.get("width"), image.get("height")
    if not (_is_number(*sides) and all(0 < side <= _MAX_SIDE and side == int(side) for side in sides)):
        return f"size {short(sides[0])} x {short(sides[1])} is not a size in pixels ({short(name)})"
    return None


def _bad_annotations(coco: Mapping[str, Any], with_mask: bool) -> Iterator[Problem]:
    images = {image["id"]: image for image in coco["images"] if _image_reason(image) is None}
    known = {image["id"] for image in coco["images"] if _is_id(image["id"])}
    categories = {category["id"] for category in coco["categories"]}
    seen = set()
    for index, entry in enumerate(coco["annotations"]):
        file = ""
        if not _is_id(entry["id"]):
            reason = "its id is neither an integer nor a string"
        elif not _is_id(entry.get("image_id")) or entry["image_id"] not in known:
            reason = f"no image has image_id {short(entry.get('image_id'))}"
        elif entry["image_id"] not in images:
            continue  # left out with its image
        elif entry["id"] in seen:
            reason = "its id is used twice"
        elif not _is_id(entry.get("category_id")) or entry["category_id"] not in categories:
            reason = f"no category has category_id {short(entry.get('category_id'))}"
        else:
            image = images[entry["image_id"]]
            file = image["file_name"]
            reason = _box_reason(entry, image) or (_mask_reason(entry, image) if with_mask else None)
        if _is_id(entry["id"]):
            seen.add(entry["id"])
        if reason:
            yield Problem("annotations", index, entry["id"], reason, file)


def _box_reason(entry: Mapping, image: Mapping) -> str | None:
    box = entry.get("bbox")
    if not _is_box(box):
        return f"bbox is {short(box)}; it must be four finite numbers (x, y, width, height)"
    x, y, width, height = box
    if width < 1 or height < 1:
        return f"bbox {short(box)} is smaller than a pixel"
    if min(x + width, image["width"]) <= max(x, 0) or min(y + height, image["height"]) <= max(y, 0):
        return f"bbox {short(box)} lies outside the image"
    if not _is_number(entry.get("area")) or entry["area"] <= 0:
        return f"area is {short(entry.get('area'))}"
    if entry.get("iscrowd", 0) not in (0, 1):
        return f"iscrowd is {short(entry['iscrowd'])}; it must be 0 or 1"
    return None


def _mask_reason(entry: Mapping, image: Mapping) -> str | None:
    mask, height, width = entry.get("segmentation"), int(image["height"]), int(image["width"])
    if not mask:
        return "it has no segmentation" if mask is None else "its segmentation is empty"
    if isinstance(mask, Mapping):
        return _rle_reason(mask, height, width)
    if not isinstance(mask, list) or not all(isinstance(polygon, list) for polygon in mask):
        return f"its segmentation is a {type(mask).__name__}; it must be polygons or an RLE"
    for polygon in mask:
        if len(polygon) < 6 or len(polygon) % 2 or not _is_number(*polygon):
            return (
                f"a polygon of its segmentation has {len(polygon)} numbers; it needs three or more finite points (x, y)"
            )
        # Drawing takes memory and time in proportion to the length of the outline.
        if not (_is_within(polygon[0::2], width) and _is_within(polygon[1::2], height)):
            return "a polygon of its segmentation reaches far outside the image"
    # A small polygon may miss every pixel; only drawing it shows that.
    if sum(_visible_area(polygon, height, width) for polygon in mask) < 4:
        from pycocotools import mask as masks

        if not masks.area(masks.frPyObjects(mask, height, width)).sum():
            return "its mask covers no pixel of the image"
    return None


def _rle_reason(mask: Mapping, height: int, width: int) -> str | None:
    # pycocotools does not check the runs. It leaves pixels that no run covers uninitialised.
    if mask.get("size") not in ([height, width], (height, width)):
        return f"the size of its RLE is {short(mask.get('size'))}, but the image is {[height, width]}"
    counts = mask.get("counts")
    if isinstance(counts, str | bytes):
        counts = read_runs(counts)
        if counts is None:
            return "the counts of its RLE are not a valid RLE string"
    if not isinstance(counts, list) or not all(type(run) is int and run >= 0 for run in counts):
        return "the runs of its RLE are not whole numbers from 0"
    if sum(counts) != height * width:
        return f"the runs of its RLE add up to {short(sum(counts))}, but the image has {height * width} pixels"
    return None if any(counts[1::2]) else "its RLE holds no pixel"


def _is_within(points: Sequence[float], side: int) -> bool:
    """Whether all points lie inside the image or at most one side length outside."""
    return -side <= min(points) and max(points) <= 2 * side


def _visible_area(polygon: Sequence[float], height: int, width: int) -> float:
    """Return the area of a polygon whose points are clamped to the image."""
    return cv2.contourArea(np.float32(np.reshape(polygon, (-1, 2)).clip(0, (width, height))))


def _is_box(box: Any) -> bool:
    return isinstance(box, list | tuple) and len(box) == 4 and _is_number(*box)


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_number(*values: Any) -> bool:
    """Whether all values are finite numbers that fit a float."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return numbers and all(abs(value) < 1e300 for value in values)


def _is_encodable(text: str) -> bool:
    """Whether a string can be written in UTF-8; one with lone surrogates cannot."""
    return text.encode(errors="ignore").decode() == text
