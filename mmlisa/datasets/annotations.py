"""Checks of COCO annotations for mistakes that a training hides: boxes, masks and categories that cannot be right."""

import math
from collections.abc import Mapping
from typing import Any

_MOST_OUTSIDE = 0.1  # share of boxes that reach outside their image; more than that means another box format


def find_bad_annotations(coco: Mapping[str, Any], with_mask: bool = True) -> dict[Any, str]:
    """Return the reason why a training cannot use an annotation, by the annotation's id.

    Args:
        coco: the content of a COCO file.
        with_mask: every annotation needs a segmentation.

    Raises:
        ValueError: the file as a whole is not a COCO file, an image has no size, or an id of a category or image is used twice.
    """
    if not isinstance(coco, Mapping) or not {"images", "annotations", "categories"} <= coco.keys():
        raise ValueError("it is not a dict with images, annotations and categories")
    try:
        categories = {category["id"]: category["name"] for category in coco["categories"]}
        images = {image["id"]: image for image in coco["images"]}
        for image in images.values():
            name, sides = image["file_name"], (image["width"], image["height"])
            if not (_are_finite(*sides) and min(sides) > 0):
                raise ValueError(f"width and height of its image {name!r} are {sides}, which is not a size in pixels")
        if len(categories) < len(coco["categories"]) or len(images) < len(coco["images"]):
            raise ValueError("an id of its images or categories is used twice; give each its own id")
        reasons = {entry["id"]: _find_reason(entry, images, categories, with_mask) for entry in coco["annotations"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"an entry has an unexpected form ({error!r})") from error
    return {number: reason for number, reason in reasons.items() if reason}


def find_doubts(coco: Mapping[str, Any]) -> list[str]:
    """Return sentences about what is probably wrong with a whole COCO file that :func:`find_bad_annotations` accepts."""
    images, entries, doubts = {image["id"]: image for image in coco["images"]}, coco["annotations"], []
    boxes = [(entry["bbox"], images.get(entry["image_id"])) for entry in entries if _is_box(entry.get("bbox"))]
    outside = sum(
        x + width > image["width"] + 1 or y + height > image["height"] + 1
        for (x, y, width, height), image in boxes
        if image is not None
    )
    if outside > _MOST_OUTSIDE * len(entries):
        doubts.append(
            f"{outside} of {len(entries)} boxes reach outside their image; if they are (x1, y1, x2, y2), write them as (x, y, "
            "width, height)"
        )
    if any(entry["id"] == 0 for entry in entries):
        doubts.append("COCO's evaluation counts the annotation with id 0 as never found; number annotations from 1")
    if any("iscrowd" not in entry for entry in entries):
        doubts.append('COCO\'s evaluation fails on annotations without iscrowd; add "iscrowd": 0 to each')
    return doubts


def _find_reason(entry: Mapping, images: Mapping, categories: Mapping, with_mask: bool) -> str:
    """Return why a training cannot use an annotation; empty if it can."""
    image, box, mask = images.get(entry["image_id"]), entry.get("bbox"), entry.get("segmentation")
    if image is None:
        return f"no image has image_id {entry['image_id']!r}"
    if entry["category_id"] not in categories:
        return f"no category has category_id {entry['category_id']!r}"
    if not _is_box(box):
        return f"bbox is {box!r}; it must be four finite numbers (x, y, width, height)"
    x, y, width, height = box
    if width < 1 or height < 1:
        return f"bbox {box} is smaller than a pixel"
    if x >= image["width"] or y >= image["height"] or x + width <= 0 or y + height <= 0:
        return f"bbox {box} lies outside the image"
    if not (_are_finite(entry.get("area")) and entry["area"] > 0):
        return f"area is {entry.get('area')!r}; it must be above 0"
    if with_mask and not mask:
        return "it has no segmentation"
    polygons = mask if with_mask and not isinstance(mask, Mapping) else []
    if not all(len(part) >= 6 and len(part) % 2 == 0 and _are_finite(*part) for part in polygons):
        return "a polygon of its segmentation is not a list of three or more finite points (x, y)"
    return ""


def _is_box(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 4 and _are_finite(*value)


def _are_finite(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) and math.isfinite(value) for value in values)
