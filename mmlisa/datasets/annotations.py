"""Checks of COCO annotations for mistakes that a training hides: boxes, masks and categories that cannot be right."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmlisa.errors import UserError

_MOST_OUTSIDE = 0.1  # share of boxes that reach outside their image; more than that means another box format
_LEAST_OVERLAP = 0.5  # of an object's box and that of its mask; less means another place
_LOOKED_AT = 1000  # masks of a file that are compared with their boxes


def find_bad_annotations(coco: Mapping[str, Any], with_mask: bool = True) -> dict[Any, str]:
    """Return the reason why a training cannot use an annotation, by the annotation's id.

    Args:
        coco: the content of a COCO file.
        with_mask: every annotation needs a segmentation.

    Raises:
        UserError: the file as a whole is not a COCO file, an image has no size, or an id is used twice.
    """
    if not isinstance(coco, Mapping) or not {"images", "annotations", "categories"} <= coco.keys():
        raise UserError("it is not a dict with images, annotations and categories")
    try:
        categories = {category["id"]: category["name"] for category in coco["categories"]}
        images = {image["id"]: image for image in coco["images"]}
        for image in images.values():
            name, sides = image["file_name"], (image["width"], image["height"])
            if not (_are_finite(*sides) and min(sides) > 0):
                raise UserError(f"width and height of its image {name!r} are {sides}, which is not a size in pixels")
        reasons = {entry["id"]: _find_reason(entry, images, categories, with_mask) for entry in coco["annotations"]}
        for key, ids in {"images": images, "categories": categories, "annotations": reasons}.items():
            if len(ids) < len(coco[key]):
                raise UserError(f"an id of its {key} is used twice; give each its own id")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"an entry has an unexpected form ({error!r})") from error
    return {number: reason for number, reason in reasons.items() if reason}


def _find_reason(entry: Mapping, images: Mapping, categories: Mapping, with_mask: bool) -> str:
    if (image := images.get(entry["image_id"])) is None:
        return f"no image has image_id {entry['image_id']!r}"
    if entry["category_id"] not in categories:
        return f"no category has category_id {entry['category_id']!r}"
    return find_reason(entry, (image["width"], image["height"]), with_mask)


def find_doubts(coco: Mapping[str, Any]) -> list[str]:
    """Return sentences about what is probably wrong with a whole COCO file that :func:`find_bad_annotations` accepts."""
    images, entries = {image["id"]: image for image in coco["images"]}, coco["annotations"]
    usable = [entry for entry in entries if _is_box(entry.get("bbox")) and entry["image_id"] in images]
    sizes = [(images[entry["image_id"]]["width"], images[entry["image_id"]]["height"]) for entry in usable]
    doubts = find_misplaced(usable, sizes)
    if any(entry["id"] == 0 for entry in entries):
        doubts.append("mmdet's CocoMetric counts the annotation with id 0 as never found; mmlisa.CocoMetric does not")
    if any("iscrowd" not in entry for entry in entries):
        doubts.append(
            'mmdet\'s CocoMetric fails on annotations without iscrowd; add "iscrowd": 0, or take mmlisa.CocoMetric'
        )
    return doubts


def find_misplaced(entries: Sequence[Mapping[str, Any]], sizes: Sequence[tuple[float, float]]) -> list[str]:
    """Return sentences if many objects lie outside their images (width, height), or their masks elsewhere than their boxes."""
    boxes, doubts = [entry["bbox"] for entry in entries], []
    outside = sum(x + w > size[0] + 1 or y + h > size[1] + 1 for (x, y, w, h), size in zip(boxes, sizes, strict=True))
    if outside > _MOST_OUTSIDE * len(entries):
        doubts.append(
            f"{outside} of {len(entries)} boxes reach outside their image; if they are (x1, y1, x2, y2), write them as (x, y, "
            "width, height)"
        )
    masks = [(entry, size) for entry, size in zip(entries, sizes, strict=True) if entry.get("segmentation")]
    masks = [entry for entry, size in masks[:: 1 + len(masks) // _LOOKED_AT] if not find_reason(entry, size, True)]
    apart = sum(_overlap(entry["bbox"], _mask_box(entry["segmentation"])) < _LEAST_OVERLAP for entry in masks)
    if apart > _MOST_OUTSIDE * len(masks):
        doubts.append(
            f"{apart} of {len(masks)} masks lie elsewhere than their boxes; are x and y exchanged, or is the image's size wrong?"
        )
    return doubts


def find_reason(entry: Mapping[str, Any], size: tuple[float, float], with_mask: bool) -> str:
    """Return why a training cannot use an annotation in an image of ``size`` (width, height); empty if it can."""
    box, mask = entry.get("bbox"), entry.get("segmentation")
    if not _is_box(box):
        return f"bbox is {box!r}; it must be four finite numbers (x, y, width, height)"
    x, y, width, height = box
    if width < 1 or height < 1:
        return f"bbox {box} is smaller than a pixel"
    if x >= size[0] or y >= size[1] or x + width <= 0 or y + height <= 0:
        return f"bbox {box} lies outside the image"
    if not (_are_finite(entry.get("area")) and entry["area"] > 0):
        return f"area is {entry.get('area')!r}; it must be above 0"
    if not with_mask:
        return ""
    if not mask:
        return "it has no segmentation"
    if isinstance(mask, Mapping):
        return _find_bad_run_lengths(mask, [int(size[1]), int(size[0])])
    if not all(map(is_polygon, mask)):
        return "a polygon of its segmentation is not a list of three or more finite points (x, y)"
    return ""


def _find_bad_run_lengths(mask: Mapping[str, Any], shape: list[int]) -> str:
    """Return what is wrong with run lengths of an image of ``shape`` [height, width]; empty if nothing."""
    stated = list(mask.get("size") or ())
    if stated != shape:
        turned = ", with its sides exchanged" if stated == shape[::-1] else ""
        return f"the size of its run lengths is {stated}{turned}; that of its image is {shape} [height, width]"
    counts = run_lengths(mask.get("counts") or [])
    if sum(counts) != math.prod(shape) or min(counts) < 0:
        return f"its run lengths cover {sum(counts)} pixels, its image has {math.prod(shape)}"
    return "" if sum(counts[1::2]) else "its run lengths hold no pixel"


def run_lengths(counts: Sequence[int] | str | bytes) -> list[int]:
    """Return the numbers of COCO's run lengths, compressed or not."""
    if not isinstance(counts, str | bytes):
        return list(counts)
    numbers, number, shift = [], 0, 0
    for byte in counts.encode() if isinstance(counts, str) else counts:
        number |= (byte - 48 & 31) << shift
        shift += 5
        if not byte - 48 & 32:
            number -= (1 << shift) if byte - 48 & 16 else 0
            numbers.append(number + (numbers[-2] if len(numbers) > 2 else 0))
            number = shift = 0
    return numbers


def is_polygon(value: Any) -> bool:
    """Return whether this is a list of three or more finite points, x and y in turn."""
    return isinstance(value, list) and len(value) >= 6 and len(value) % 2 == 0 and _are_finite(*value)


def _mask_box(mask: Any) -> tuple[float, float, float, float]:
    """Return left, top, width and height of polygons or run lengths."""
    if isinstance(mask, Mapping):
        from pycocotools import mask as coco

        encoded = mask if isinstance(mask["counts"], str | bytes) else coco.frPyObjects(dict(mask), *mask["size"])
        return tuple(coco.toBbox(encoded))
    x, y = ([value for polygon in mask for value in polygon[start::2]] for start in (0, 1))
    return min(x), min(y), max(x) - min(x), max(y) - min(y)


def _overlap(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the intersection over union of two boxes, each left, top, width and height."""
    sides = [
        max(0.0, min(first[i] + first[i + 2], second[i] + second[i + 2]) - max(first[i], second[i])) for i in (0, 1)
    ]
    inside = math.prod(sides)
    return inside / max(first[2] * first[3] + second[2] * second[3] - inside, 1e-9)


def _is_box(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 4 and _are_finite(*value)


def _are_finite(*values: Any) -> bool:
    try:
        return math.isfinite(sum(values))
    except TypeError:  # not numbers
        return False
