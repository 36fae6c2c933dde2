"""Overlapping tiles of large images, and the merging of what a detector finds in them."""

import cv2
import numpy as np

from .errors import InputError
from .masks import Prediction, encode_mask


def check_tiles(tile: int, overlap: float) -> None:
    """Raise an :class:`InputError` if ``tile`` is smaller than 64 pixels, or ``overlap`` is not in [0, 1)."""
    if tile < 64:
        raise InputError(f"tile={tile} is too small for objects and their surroundings; use 64 pixels or more")
    if not 0 <= overlap < 1:
        raise InputError(f"overlap={overlap} leaves no step between tiles; use 0 or more, and less than 1")


class Tiles:
    """Tiles of ``tile`` pixels of an image of ``size`` (height, width); the next one repeats the share ``overlap``.

    Tiles start at multiples of ``round(tile * (1 - overlap))``; the last one of a row or column is moved back to the border of
    the image, as in mmseg's slide mode. An image smaller than a tile is one tile of its own size.

    A detection counts if its centre is nearer to the middle of its tile than to that of the next tile, or up to a quarter of the
    overlap beyond. The next tile contains more of the objects that do not count.

    Two detections of one class in different tiles are the same object if the part of their boxes that both tiles contain has an
    IoU of at least 0.5. The better one stays. If its tile cuts it (the box ends within 1/64 of the tile's side from an inner
    border), the best of each other tile is joined to it, boxes and masks, and so on along a row of tiles.

    Attributes:
        windows: ``[T, 4]``, x1, y1, x2, y2 of each tile, row by row.

    Raises:
        InputError: see :func:`check_tiles`.
    """

    def __init__(self, size: tuple[int, int], tile: int, overlap: float) -> None:
        check_tiles(tile, overlap)
        stride = max(round(tile * (1 - overlap)), 1)
        self.size, self._margin = size, tile / 64
        spans, limits = zip(*(_spans(side, tile, stride) for side in size), strict=True)
        self.windows, self._limits = (
            np.array([(x1, y1, x2, y2) for y1, y2 in rows for x1, x2 in columns]) for rows, columns in (spans, limits)
        )
        number = np.zeros(0, np.int64)
        self._counted = [(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), number, number)]
        self._parts: list[tuple[int, int, np.ndarray]] | None = None

    def add(self, index: int, prediction: Prediction) -> None:
        """Keep the detections of tile ``index`` that count; boxes and masks are in pixels of the tile."""
        corner = self.windows[index, :2]
        boxes = prediction.boxes + np.tile(corner, 2).astype(np.float32)
        centres, limits = (boxes[:, :2] + boxes[:, 2:]) / 2, self._limits[index]
        counted = np.flatnonzero(((centres >= limits[:2]) & (centres < limits[2:])).all(axis=1))
        owners = np.full(len(counted), index)
        self._counted.append((boxes[counted], prediction.scores[counted], prediction.labels[counted], owners))
        if prediction.masks is not None:
            self._parts = (self._parts or []) + [_cut_out(prediction.masks[i], *corner) for i in counted]

    def merge(self, score_threshold: float = 0.0) -> Prediction:
        """Return the objects of the image whose scores reach the threshold, in its pixels, the best first."""
        columns = [np.concatenate(column) for column in zip(*self._counted, strict=True)]
        order = np.argsort(-columns[1], kind="stable")
        boxes, scores, labels, owners = (column[order] for column in columns)
        groups = [group for group in self._group(boxes, labels, owners) if scores[group[0]] >= score_threshold]
        best = [group[0] for group in groups]
        joined = [np.append(boxes[group, :2].min(axis=0), boxes[group, 2:].max(axis=0)) for group in groups]
        merged = Prediction(np.array(joined, np.float32).reshape(-1, 4), scores[best], labels[best])
        if self._parts is not None:
            merged.masks = [encode_mask([self._parts[order[i]] for i in group], self.size) for group in groups]
        return merged

    def _group(self, boxes: np.ndarray, labels: np.ndarray, owners: np.ndarray) -> list[list[int]]:
        """Return the detections of each object, the best first; the detections are sorted by score."""
        partners = self._find_partners(boxes, labels, owners)
        windows, ends = self.windows[owners], np.tile(self.size[::-1], 2)
        inner = (windows > 0) & (windows < ends)
        cut = (inner & (np.abs(boxes - windows) <= self._margin)).any(axis=1)
        free, groups = np.ones(len(boxes), bool), []
        for best in range(len(boxes)):
            if not free[best]:
                continue
            free[best], group = False, [best]
            for member in group:  # the list grows along a row of tiles
                near = [i for i in sorted(partners[member]) if free[i]]
                free[near] = False
                if cut[member]:
                    group += {owners[i]: i for i in reversed(near)}.values()  # the best of each tile
            groups.append(group)
        return groups

    def _find_partners(self, boxes: np.ndarray, labels: np.ndarray, owners: np.ndarray) -> list[list[int]]:
        """Return for each detection those of the same object in other tiles."""
        partners: list[list[int]] = [[] for _ in boxes]
        members = {owner: np.flatnonzero(owners == owner) for owner in np.unique(owners)}
        for one, other in np.argwhere(np.triu(_ious(self.windows, self.windows), k=1)):
            a, b = members.get(one, ()), members.get(other, ())
            if not len(a) or not len(b):
                continue
            low = np.tile(np.maximum(self.windows[one, :2], self.windows[other, :2]), 2)
            high = np.tile(np.minimum(self.windows[one, 2:], self.windows[other, 2:]), 2)
            same = _ious(boxes[a].clip(low, high), boxes[b].clip(low, high)) >= 0.5
            for i, j in zip(*np.nonzero(same & (labels[a][:, None] == labels[b])), strict=True):
                partners[a[i]].append(int(b[j]))
                partners[b[j]].append(int(a[i]))
        return partners


def _spans(side: int, tile: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of each tile ``[T, 2]`` along a side, and the limits ``[T, 2]`` of the centres that count."""
    starts = np.minimum(np.arange(0, max(side - tile, 0) + stride, stride), max(side - tile, 0))
    ends = np.minimum(starts + tile, side)
    middles, slack = (starts[1:] + ends[:-1]) / 2, (tile - stride) / 4
    limits = np.append(-np.inf, middles - slack), np.append(middles + slack, np.inf)
    return np.stack([starts, ends], axis=1), np.stack(limits, axis=1)


def _ious(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the IoU of each pair of boxes, ``[N, 4]`` and ``[M, 4]`` -> ``[N, M]``; 0 for empty boxes."""
    low, high = np.maximum(first[:, None, :2], second[:, :2]), np.minimum(first[:, None, 2:], second[:, 2:])
    common = (high - low).clip(0).prod(axis=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(0).prod(axis=1) for boxes in (first, second)]
    return common / np.maximum(areas[0][:, None] + areas[1] - common, 1e-9)


def _cut_out(mask: np.ndarray, x: int, y: int) -> tuple[int, int, np.ndarray]:
    """Return the part of ``mask [H, W]`` that contains its pixels, and the part's place if the mask's corner is at (x, y)."""
    left, above, width, height = cv2.boundingRect(mask.astype(np.uint8))
    part = mask[above : above + height, left : left + width].astype(bool)  # a copy; the mask can be freed
    return int(x) + left, int(y) + above, part
