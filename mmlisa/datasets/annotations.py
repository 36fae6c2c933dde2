"""Checks of COCO annotations for mistakes that a training hides: boxes, masks and categories that cannot be right."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools import mask as coco

from mmlisa.errors import UserError
from mmlisa.runtime.predictions import decode_counts

_MOST_OUTSIDE = 0.1  # share of boxes that reach outside their image; more than that means another box format
_FEW_OUTSIDE = 0.01  # share of boxes that do so, or fit no other format, by mistakes of the annotators
_ROUNDED = 0.01  # by which YOLO's programs leave the image, as a share of its sides
_TWINS = 0.9  # intersection over union of two annotations of one object
_CHANCE = 2  # twins that are objects of their own
_FEWEST_BOXES = 50  # from which their places can be judged
_LEAST_OVERLAP = 0.5  # intersection over union of a box and its mask's; less means another place
_LOOKED_AT = 1000  # masks of a file that are compared with their boxes, and images with repeated objects


def find_bad_annotations(content: Mapping[str, Any], with_mask: bool = True) -> dict[Any, str]:
    """Return why a training cannot use annotations of a COCO file, by their ids; ``with_mask``: each needs a segmentation.

    Raises:
        UserError: the file as a whole is not a COCO file, an image has no size, or an id is used twice.
    """
    if not isinstance(content, Mapping) or not {"images", "annotations", "categories"} <= content.keys():
        raise UserError("it is not a dict with images, annotations and categories")
    try:
        categories = {category["id"]: category["name"] for category in content["categories"]}
        sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
        for image in content["images"]:
            if not (_are_finite(*sizes[image["id"]]) and min(sizes[image["id"]]) > 0):
                name, sides = image["file_name"], sizes[image["id"]]
                raise UserError(f"width and height of its image {name!r} are {sides}, which is not a size in pixels")
        reasons = {}
        for entry in content["annotations"]:
            if entry["image_id"] not in sizes:
                reason = f"no image has image_id {entry['image_id']!r}"
            elif entry["category_id"] not in categories:
                reason = f"no category has category_id {entry['category_id']!r}"
            else:
                reason = find_reason(entry, sizes[entry["image_id"]], with_mask)
            reasons[entry["id"]] = reason
        for key, ids in {"images": sizes, "categories": categories, "annotations": reasons}.items():
            if len(ids) < len(content[key]):
                raise UserError(f"an id of its {key} is used twice; give each its own id")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"an entry has an unexpected form ({error!r})") from error
    return {number: reason for number, reason in reasons.items() if reason}


def find_misplaced(entries: Sequence[Mapping[str, Any]], sizes: Sequence[tuple[float, float]]) -> list[str]:
    """Return sentences if many objects lie outside their images (width, height), or their masks elsewhere than their boxes."""
    pairs, doubts = list(zip(entries, sizes, strict=True)), []
    boxes, images = _stack(entries, sizes)
    outside = np.count_nonzero((boxes[:, :2] + boxes[:, 2:] > images + 1).any(1))
    # Centres of small objects: few boxes leave the image, and none would with its centre there.
    are_centres = outside > 1 and outside > _FEW_OUTSIDE * len(entries) and not _leaves(boxes, images).any()
    if outside > _MOST_OUTSIDE * len(entries) or are_centres:
        kind = "(centre x, centre y, width, height)" if are_centres else "(x1, y1, x2, y2)"
        remedy = f"if they are {kind}, write them as (x, y, width, height)"
        doubts.append(f"{outside} of {len(entries)} boxes reach outside their image; {remedy}")
    pairs = [(entry, size) for entry, size in pairs if entry.get("segmentation")]
    masks = [entry for entry, size in pairs[:: 1 + len(pairs) // _LOOKED_AT] if not find_reason(entry, size, True)]
    overlaps = [coco.iou([list(each["bbox"])], [_mask_box(each["segmentation"])], [0]).item() for each in masks]
    apart = sum(overlap < _LEAST_OVERLAP for overlap in overlaps)
    if apart > _MOST_OUTSIDE * len(masks):
        question = "are x and y exchanged, or is the image's size wrong?"
        doubts.append(f"{apart} of {len(masks)} masks lie elsewhere than their boxes; {question}")
    return doubts


def check_fractions(boxes: np.ndarray, where: object) -> list[str]:
    """Refuse YOLO's boxes ``[N, 4]`` of the folder ``where`` if some leave the image, and nearly none would as other numbers.

    Returns:
        A note if many boxes leave the image, whatever their numbers mean: centre, width and height in fractions, or others.
    """
    outside = np.count_nonzero(_leaves(boxes, np.ones(2), tolerance=_ROUNDED))
    if outside < 2 or outside <= _FEW_OUTSIDE * len(boxes):
        return []
    found = f"{outside} of {len(boxes)} boxes reach outside their image"
    first, second = boxes[:, :2], boxes[:, 2:]
    fitting = {
        "x1 y1 x2 y2": (second > first).all(1),
        "left top width height": (first + second <= 1 + _ROUNDED).all(1),
    }
    for kind, fits in fitting.items():
        if np.count_nonzero(~fits) <= _FEW_OUTSIDE * len(boxes):
            written = "write them as centre x, centre y, width and height"
            raise UserError(f"{where}: {found}; they fit as {kind}: {written}")
    return [f"{found} and are cut at its sides"] if outside > _MOST_OUTSIDE * len(boxes) else []


def find_repeated(entries: Sequence[Mapping[str, Any]], images: Sequence[Any]) -> list[str]:
    """Return a sentence if many objects have a twin: another of the same class in the same place of the same image."""
    by_class = defaultdict(list)
    for entry, image in zip(entries, images, strict=True):
        by_class[image, entry["category_id"]].append(list(entry["bbox"]))
    groups = [*by_class.values()]
    groups = groups[:: 1 + len(groups) // _LOOKED_AT]
    pairs = [coco.iou(boxes, boxes, [0] * len(boxes)) for boxes in groups]
    twins = sum(np.count_nonzero(np.triu(overlaps, 1).max(0) > _TWINS) for overlaps in pairs)
    if twins <= max(_CHANCE, _MOST_OUTSIDE * sum(map(len, groups))):
        return []
    where = f"{twins} of {sum(map(len, groups))} objects"
    return [f"{where} are annotated twice, in the same place with the same class; remove one of each two"]


def find_shrunk(entries: Sequence[Mapping[str, Any]], sizes: Sequence[tuple[float, float]]) -> list[str]:
    """Return a sentence if the objects fill the upper left quarter of their images (width, height), and no other."""
    if len(entries) < _FEWEST_BOXES:
        return []
    boxes, images = _stack(entries, sizes)
    near, far = (boxes[:, :2] / images).min(0), ((boxes[:, :2] + boxes[:, 2:]) / images).max(0)
    if (near > 0.05).any() or (far < 0.45).any() or (far > 0.505).any():
        return []
    return ["all objects lie in the upper left quarter of the images; were they annotated at half of the size?"]


def _stack(entries: Sequence[Mapping[str, Any]], sizes: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes ``[N, 4]`` and the sizes of their images ``[N, 2]``."""
    boxes = np.array([entry["bbox"] for entry in entries], np.float64)
    return boxes.reshape(-1, 4), np.array(sizes, np.float64).reshape(-1, 2)


def _leaves(boxes: np.ndarray, images: np.ndarray, tolerance: float = 1) -> np.ndarray:
    """Return which boxes ``[N, 4]``, taken as centre and size, leave their images (width, height)."""
    half = boxes[:, 2:] / 2
    return ((boxes[:, :2] < half - tolerance) | (boxes[:, :2] + half > images + tolerance)).any(1)


def find_reason(entry: Mapping[str, Any], size: tuple[float, float], with_mask: bool) -> str:
    """Return why a training cannot use an annotation in an image of ``size`` (width, height); empty if it can."""
    box, mask = entry.get("bbox"), entry.get("segmentation")
    if not (isinstance(box, list | tuple) and len(box) == 4 and _are_finite(*box)):
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
    stated, counts = list(mask.get("size") or ()), mask.get("counts") or []
    if stated != shape:
        turned = ", with its sides exchanged" if stated == shape[::-1] else ""
        return f"the size of its run lengths is {stated}{turned}; that of its image is {shape} [height, width]"
    counts = decode_counts(counts) if isinstance(counts, str | bytes) else counts
    if sum(counts) != math.prod(shape) or min(counts) < 0:
        return f"its run lengths cover {sum(counts)} pixels, its image has {math.prod(shape)}"
    return "" if sum(counts[1::2]) else "its run lengths hold no pixel"


def encode(mask: Any, size: Sequence[int]) -> dict[str, Any]:
    """Return polygons or run lengths of an image of ``size`` (height, width) as compressed run lengths, the counts as text."""
    if isinstance(mask, list):
        mask = coco.merge(coco.frPyObjects(mask, *size))
    elif isinstance(mask["counts"], list):
        mask = coco.frPyObjects(dict(mask), *size)
    return {**mask, "counts": mask["counts"].decode() if isinstance(mask["counts"], bytes) else mask["counts"]}


def is_polygon(value: Any) -> bool:
    """Return whether this is a list of three or more finite points, x and y in turn."""
    return isinstance(value, list) and len(value) >= 6 and len(value) % 2 == 0 and _are_finite(*value)


def _mask_box(mask: Any) -> list[float]:
    """Return left, top, width and height; polygons are measured exactly, because run lengths of thin ones hold no pixel."""
    if isinstance(mask, Mapping):
        return coco.toBbox(encode(mask, mask["size"])).tolist()
    points = np.concatenate([np.reshape(polygon, (-1, 2)) for polygon in mask])
    return [*points.min(0).tolist(), *np.ptp(points, 0).tolist()]


def _are_finite(*values: Any) -> bool:
    try:
        return math.isfinite(sum(values))
    except TypeError:  # not numbers
        return False
