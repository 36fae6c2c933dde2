"""Tiles of large images for the training of detectors, cut when the image is read."""

from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from pycocotools import mask as coco

from mmlisa.registry import TRANSFORMS
from mmlisa.runtime.predictions import decode_part, encode_mask

from .annotations import encode

Results = dict[str, Any]


@TRANSFORMS.register_module()
class RandomTile(BaseTransform):
    """A random tile of an image, and the objects in it; the step between mmdet's ``LoadImageFromFile`` and ``LoadAnnotations``.

    It cuts the annotations as the data set gives them, so that no mask is made at the size of the image. mmdet's ``RandomCrop``
    comes after ``LoadAnnotations`` and does not look for objects. For segmentors, mmseg's ``RandomCrop`` is right.

    An object that the tile cuts gets the box of its visible mask, or else the visible part of its box. An image smaller than a
    tile stays whole in that direction.

    Args:
        size: side of the tile in pixels.
        near_object: probability that the tile contains an object drawn at random, whole if it fits.
        min_visibility: share of a cut object's area that must lie in the tile; with less, the object is left out.
        empty: share that is kept of the tiles without objects; the others are replaced by a tile with an object.
    """

    def __init__(self, size: int, near_object: float = 0.7, min_visibility: float = 0.3, empty: float = 0.5) -> None:
        self.size, self.near_object, self.min_visibility, self.empty = size, near_object, min_visibility, empty

    def transform(self, results: Results) -> Results:
        """Cut ``img`` ``[H, W, C]`` and ``instances``; ``img_shape`` and ``ori_shape`` become those of the tile."""
        size, objects = results["img"].shape[:2], results.get("instances", [])
        boxes = [entry["bbox"] for entry in objects if not entry.get("ignore_flag")]
        boxes = np.array(boxes, np.float64).reshape(-1, 4)
        corner = self._draw(size, boxes)
        cut = self._cut(objects, corner, size)
        if len(boxes) and not cut and np.random.random() >= self.empty:
            corner = self._draw_near(size, boxes)
            cut = self._cut(objects, corner, size)
        x, y = corner
        results["img"] = np.ascontiguousarray(results["img"][y : y + self.size, x : x + self.size])
        results["img_shape"] = results["ori_shape"] = results["img"].shape[:2]
        results["instances"] = cut
        return results

    def _draw(self, size: tuple[int, int], boxes: np.ndarray) -> np.ndarray:
        """Return the corner (x, y) of a tile."""
        if len(boxes) and np.random.random() < self.near_object:
            return self._draw_near(size, boxes)
        return np.array([np.random.randint(max(side - self.size, 0) + 1) for side in size[::-1]])

    def _draw_near(self, size: tuple[int, int], boxes: np.ndarray) -> np.ndarray:
        low, high = boxes[np.random.randint(len(boxes))].reshape(2, 2)
        slack = np.abs(self.size - (high - low)) / 2
        middle = (low + high) / 2 + np.random.uniform(-slack, slack)
        return np.clip(np.round(middle - self.size / 2), 0, np.maximum(np.array(size[::-1]) - self.size, 0)).astype(int)

    def _cut(self, objects: list[Results], corner: np.ndarray, size: tuple[int, int]) -> list[Results]:
        """Return the objects of a tile in its pixels; ``size`` is (height, width) of the image."""
        tile, results = tuple(min(side, self.size) for side in size), []
        for entry in objects:
            box, mask = np.array(entry["bbox"], np.float64) - np.tile(corner, 2), entry.get("mask")
            visible = box.clip(0, tile[::-1] * 2)
            if (visible[2:] <= visible[:2]).any():
                continue
            share = np.prod(visible[2:] - visible[:2]) / np.prod(box[2:] - box[:2])
            if mask:
                mask = _move(mask, corner, size, tile)
            if mask and share < 1:
                mask = encode(mask, tile)
                share = coco.area(mask) / max(coco.area(encode(entry["mask"], size)), 1)
                x, y, w, h = coco.toBbox(mask)
                visible = np.array([x, y, x + w, y + h])
            if share >= self.min_visibility:
                results.append({**entry, "bbox": visible.tolist(), **({} if mask is None else {"mask": mask})})
        return results


def _move(mask: Any, corner: np.ndarray, size: tuple[int, int], tile: tuple[int, int]) -> Any:
    """Return polygons in pixels of the tile, or run lengths of the part of the mask that lies in the tile."""
    if isinstance(mask, list):
        return [(np.reshape(polygon, (-1, 2)) - corner).ravel().tolist() for polygon in mask if len(polygon) >= 6]
    x, y, pixels = decode_part(encode(mask, size))  # its cost is that of the object, not of the image
    left, top = (int(side) for side in corner - (x, y))
    pixels = pixels[max(top, 0) : max(top + tile[0], 0), max(left, 0) : max(left + tile[1], 0)]
    return encode_mask([(max(-left, 0), max(-top, 0), pixels)], tile)
