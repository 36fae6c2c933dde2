"""Predictions, and masks as arrays ``[H, W]`` and as COCO's run-length encodings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np


@dataclass(repr=False)
class Prediction:
    """Results for one image, in the coordinates and at the size of the original; None for what the model does not predict."""

    boxes: np.ndarray | None = None  # [N, 4]: x1, y1, x2, y2 in pixels; the best first
    scores: np.ndarray | None = None  # [N]
    labels: np.ndarray | None = None  # [N], indices of the model's classes
    masks: np.ndarray | list[dict] | None = None  # [N, H, W], bool; of tiles, COCO's run-length encodings (decode_mask)
    segmentation: np.ndarray | None = None  # [H, W], the class of each pixel
    probabilities: np.ndarray | None = None  # [C], one per class

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
