"""Predictions: masks, as arrays ``[H, W]`` and as COCO's run-length encodings, and the merging of those of overlapping tiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from .images import InputError


@dataclass(repr=False)
class Prediction:
    """Results for one image, in the coordinates and at the size of the original; None for what the model does not predict."""

    boxes: np.ndarray | None = None  # [N, 4]: x1, y1, x2, y2 in pixels; the best first
    scores: np.ndarray | None = None  # [N]
    labels: np.ndarray | None = None  # [N], indices of the model's classes
    masks: np.ndarray | list[dict] | None = None  # [N, H, W], bool; of tiles, COCO's run-length encodings (decode_mask)
    segmentation: np.ndarray | None = None  # [H, W], the class of each pixel
    probabilities: np.ndarray | None = None  # [C], one per class
    ids: np.ndarray | None = None  # [N], numbers of objects that are followed through a film, -1 for none

    def __repr__(self) -> str:
        fields = {name: value for name, value in vars(self).items() if value is not None}
        shapes = {name: list(getattr(value, "shape", (len(value),))) for name, value in fields.items()}
        return f"Prediction({', '.join(f'{name} {shape}' for name, shape in shapes.items())})"


def best_class(maps: np.ndarray, size: tuple[int, int], align_corners: bool = False) -> np.ndarray:
    """``[C, h, w]`` -> the class of each pixel of ``size`` (H, W), bilinear; one class at a time, to save memory."""
    # With aligned corners, the centres of the corner pixels stay where they are.
    y, x = (np.linspace(0, n - 1, side, dtype=np.float32) for n, side in zip(maps.shape[1:], size, strict=True))
    columns, rows = np.meshgrid(x, y)
    labels, highest = np.zeros(size, np.int64), np.full(size, -np.inf, np.float32)
    for label, logits in enumerate(maps):
        resized = (
            cv2.remap(logits, columns, rows, cv2.INTER_LINEAR) if align_corners else cv2.resize(logits, size[::-1])
        )
        labels[resized > highest] = label
        np.maximum(highest, resized, out=highest)
    return labels


def enlarge(logits: np.ndarray, stride: int, factors: Sequence[float], size: Sequence[int]) -> np.ndarray:
    """``[h, w]`` of the padded image -> ``size`` (H, W) of the original, in the two steps of RTMDet-Ins."""
    whole = cv2.resize(logits, None, fx=stride, fy=stride)
    height, width = (int(np.ceil(side * factor)) for side, factor in zip(whole.shape, factors, strict=True))
    return cv2.resize(whole, (width, height))[: size[0], : size[1]]


def paste(mask: np.ndarray, box: np.ndarray, canvas: np.ndarray, threshold: float) -> None:
    """Set the pixels of ``canvas [H, W]`` where ``mask [h, w]``, stretched over the box, reaches the threshold."""
    x1, y1, x2, y2 = box
    weights, spans = [], []
    for low, high, cells, limit in ((y1, y2, mask.shape[0], canvas.shape[0]), (x1, x2, mask.shape[1], canvas.shape[1])):
        start, stop = max(int(np.floor(low)) - 1, 0), min(int(np.ceil(high)) + 1, limit)
        centre = (np.arange(start, stop) + 0.5 - low) / max(high - low, 1e-6) * cells - 0.5
        weights.append(np.maximum(1 - np.abs(centre[:, None] - np.arange(cells)), 0))
        spans.append(slice(start, max(stop, start)))
    canvas[spans[0], spans[1]] = weights[0] @ mask @ weights[1].T >= threshold


def encode_mask(crops: Sequence[tuple[int, int, np.ndarray]], size: tuple[int, int]) -> dict[str, Any]:
    """Return the union of masks ``[h, w]``, each with the place (x, y) of its corner, as COCO's run-length encoding.

    ``size`` is (height, width) of the image. Memory and time depend on the object, not on the image.
    """
    places = [(np.nonzero(mask), x, y) for x, y, mask in crops]
    pixels = np.unique(np.concatenate([(x + columns) * size[0] + y + rows for (rows, columns), x, y in places]))
    breaks = np.flatnonzero(np.diff(pixels) > 1)
    edges = np.stack([np.append(pixels[:1], pixels[breaks + 1]), np.append(pixels[breaks], pixels[-1:]) + 1], axis=1)
    counts = np.diff(edges.ravel(), prepend=0, append=size[0] * size[1])
    counts = counts[:-1] if counts[-1] == 0 else counts
    text = bytearray()
    for index, count in enumerate(counts.tolist()):
        number, more = count - (counts[index - 2].item() if index > 2 else 0), True
        while more:  # five bits at a time, and one that says whether more follow
            bits, number = number & 31, number >> 5
            more = number != (-1 if bits & 16 else 0)
            text.append(bits + 32 * more + 48)
    return {"size": [int(side) for side in size], "counts": text.decode()}


def decode_mask(encoded: dict[str, Any]) -> np.ndarray:
    """Return a mask ``[H, W]`` (bool) of COCO's run-length encoding."""
    x, y, crop = decode_part(encoded)
    mask = np.zeros(encoded["size"], bool)
    mask[y : y + crop.shape[0], x : x + crop.shape[1]] = crop
    return mask


def decode_part(encoded: dict[str, Any]) -> tuple[int, int, np.ndarray]:
    """Return the smallest part that contains an encoded mask: x and y of its corner, and the part ``[h, w]`` (bool)."""
    edges = np.cumsum(decode_counts(encoded["counts"]))
    starts, stops = edges[0:-1:2], edges[1::2]
    if not len(stops):
        return 0, 0, np.zeros((0, 0), bool)
    lengths = stops - starts
    pixels = np.repeat(starts - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(lengths.sum())
    columns, rows = np.divmod(pixels, encoded["size"][0])
    x, y = int(columns.min()), int(rows.min())
    crop = np.zeros((int(rows.max()) - y + 1, int(columns.max()) - x + 1), bool)
    crop[rows - y, columns - x] = True
    return x, y, crop


def decode_counts(text: str | bytes) -> list[int]:
    """Return the numbers of COCO's compressed run lengths: of pixels outside and inside of the mask in turn."""
    counts, number, shift = [], 0, 0
    for byte in text.encode() if isinstance(text, str) else text:
        bits = byte - 48
        number |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            number -= (1 << shift) if bits & 16 else 0
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number = shift = 0
    return counts


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
