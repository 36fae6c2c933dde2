"""Run models that ``mmlisa export`` wrote. This file needs NumPy, OpenCV, Pillow and onnxruntime only; copy it into a product.

model = load("detector.onnx")
found = model.predict("street.jpg")
for box, label, score in zip(found.boxes, found.labels, found.scores):
    print(model.classes[label], score, box)
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

FORMAT = 1  # version of the metadata
_METHODS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}


@dataclass
class Prediction:
    """Results for one image, in the coordinates and at the size of the original; None for what the model does not predict."""

    boxes: np.ndarray | None = None  # [N, 4]: x1, y1, x2, y2 in pixels; the best first
    scores: np.ndarray | None = None  # [N]
    labels: np.ndarray | None = None  # [N], indices of the model's classes
    masks: np.ndarray | None = None  # [N, H, W], bool
    segmentation: np.ndarray | None = None  # [H, W], the class of each pixel
    probabilities: np.ndarray | None = None  # [C], one per class


def load(path: str | Path, *, threads: int | None = None, providers: Sequence[str] | None = None) -> "Model":
    """Open an exported ``.onnx`` file, for onnxruntime with ``threads`` (None: all cores) and ``providers`` (None: the CPU).

    Raises:
        ValueError: ``mmlisa export`` did not write the file. onnxruntime raises its own errors.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(str(path), options, providers or ["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    metadata = session.get_modelmeta().custom_metadata_map
    return Model(path, metadata, taken.shape, lambda image: session.run(None, {taken.name: image}))


class Model:
    """An exported model.

    Args:
        path: its file, for messages.
        metadata: metadata of the file, JSON by key.
        shape: shape of the input, with a name or None for a free axis.
        run: function from the prepared input to the outputs of the network, by onnxruntime or another engine.

    Attributes:
        task: ``'detection'``, ``'segmentation'``, ``'classification'`` or ``'video'``.
        classes: names of the classes.

    Raises:
        ValueError: the metadata are not those of ``mmlisa export``.
    """

    def __init__(
        self,
        path: str | Path,
        metadata: dict[str, str],
        shape: Sequence[Any],
        run: Callable[[np.ndarray], list[np.ndarray]],
    ) -> None:
        if "mmlisa_format" not in metadata:
            raise ValueError(f"{str(path)!r} has no metadata of mmlisa; write it with `mmlisa export` (without --raw)")
        self.metadata = {key[7:]: json.loads(value) for key, value in metadata.items() if key.startswith("mmlisa_")}
        self.path, self.shape, self.run = str(path), list(shape), run
        self.task, self.classes = self.metadata["task"], self.metadata["classes"]

    def predict(self, image: Any, score_threshold: float | None = None) -> Prediction:
        """Predict on a file, a Pillow image, or an array ``[H, W, 3]`` (RGB, uint8).

        Args:
            image: see :func:`read_image`.
            score_threshold: lowest score of a detection; None for the threshold of the file.

        Raises:
            ValueError: the image is missing, damaged or of another size than the network takes.
        """
        if self.task == "video":
            raise ValueError(f"{self.path!r} classifies clips: call run() with an array of shape {self.shape}")
        picture = read_image(image)
        prepared, size = self.prepare(picture)
        threshold = self.metadata["score_threshold"] if score_threshold is None else score_threshold
        return self.finish(self.run(prepared), size, picture.shape[:2], threshold)

    def prepare(self, picture: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """``[H, W, 3]`` (RGB, uint8) -> the input ``[1, 3, h, w]``, and (h, w) of the resized image without padding."""
        inside = picture.shape[:2]
        for name, options in self.metadata["steps"]:
            picture = STEPS[name](picture, **options)
            inside = inside if name == "Pad" else picture.shape[:2]
        size = picture.shape[:2]
        least = self.metadata.get("least", size)  # the data preprocessor pads to this size
        taken = [n if isinstance(n, int) else max(pair) for n, *pair in zip(self.shape[2:], size, least, strict=True)]
        if np.less(taken, size).any():
            raise ValueError(
                f"{self.path!r} takes images of {taken[0]}x{taken[1]} (H, W) only, and this one has {size[0]}x{size[1]} "
                f"after resizing; export it without --size, or with --size {(side := max(*taken, *size))} {side}"
            )
        mean, std = (np.float32(self.metadata[key]) for key in ("mean", "std"))
        padded = np.full((*taken, 3), self.metadata.get("border", mean), np.float32)  # the mean becomes zero
        padded[: size[0], : size[1]] = picture[..., :: -1 if self.metadata["channels"] == "BGR" else 1]
        padded = np.rint(padded).astype(np.uint8) if self.metadata["uint8"] else (padded - mean) / std
        return np.ascontiguousarray(padded.transpose(2, 0, 1))[None], inside

    def finish(
        self, outputs: Sequence[np.ndarray], size: tuple[int, int], original: tuple[int, int], threshold: float = 0.0
    ) -> Prediction:
        """Outputs of the network -> results at the original size (H, W); ``size``: see :meth:`prepare`."""
        if self.task == "classification":
            return Prediction(probabilities=outputs[0][0])
        (height, width), (h, w) = original, size
        if self.task == "segmentation":
            return Prediction(
                segmentation=_best_class(outputs[0][0][:, :h, :w], original, self.metadata.get("align_corners", False))
            )
        (boxes, scores, labels), wanted = outputs[:3], outputs[1] >= threshold
        sides = np.float32([width, height, width, height])
        boxes = boxes[wanted] * sides / np.float32([w, h, w, h])
        if self.metadata.get("clip"):  # a graph of a fixed size knows the padded image only
            boxes = boxes.clip(0, sides)
        found = Prediction(boxes, scores[wanted], labels[wanted])
        if len(outputs) > 3:
            found.masks = np.zeros((len(boxes), height, width), bool)
            for mask, box, canvas in zip(outputs[3][wanted], boxes, found.masks, strict=True):
                _paste(mask, box, canvas, self.metadata["mask_threshold"])
        return found


def read_image(image: Any) -> np.ndarray:
    """Return a file, a Pillow image or an array as ``[H, W, 3]``, RGB, uint8, turned upright by its EXIF entry.

    OpenCV reads files, as it does for the test pipelines: without transparency, and with the upper eight of 16 bits.

    Raises:
        ValueError: a file that is missing or damaged, or an array of another dtype or layout.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"image is {image.dtype} of shape {image.shape}; an array must be uint8 [H, W, 3] (RGB)")
        return image
    if isinstance(image, Image.Image):
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    picture = cv2.imread(str(image), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError(f"image {str(image)!r} cannot be read: it is missing, damaged or not an image")
    return np.ascontiguousarray(picture[..., ::-1])


Pair = int | Sequence[int]  # a width and a height, or one number for both


def _pair(size: Pair) -> Sequence[int]:
    return (size, size) if isinstance(size, int) else size


def _resize(
    picture: np.ndarray,
    scale: Pair,
    keep_ratio: bool = False,
    interpolation: str = "bilinear",
    backend: str = "cv2",
    clip_object_border: bool = True,
) -> np.ndarray:
    """Resize to ``scale``; with ``keep_ratio`` to the largest size that fits into it in either orientation."""
    (height, width), (target_w, target_h) = picture.shape[:2], _pair(scale)
    if keep_ratio:
        factor = min(max(target_w, target_h) / max(height, width), min(target_w, target_h) / min(height, width))
        target_w, target_h = (max(int(side * factor + 0.5), 1) for side in (width, height))
    if backend == "pillow":
        return np.asarray(
            Image.fromarray(picture).resize((target_w, target_h), Image.Resampling[interpolation.upper()])
        )
    return cv2.resize(picture, (target_w, target_h), interpolation=_METHODS[interpolation])


def _resize_edge(picture: np.ndarray, scale: int, edge: str = "short", **sampling: str) -> np.ndarray:
    """Resize the shorter (or longer) side to ``scale``."""
    height, width = picture.shape[:2]
    by_width = {"short": width < height, "long": width > height, "width": True, "height": False}[edge]
    size = (scale, int(scale * height / width)) if by_width else (int(scale * width / height), scale)
    return _resize(picture, size, **sampling)


def _crop(picture: np.ndarray, crop_size: Pair) -> np.ndarray:
    """Cut out the middle."""
    (width, height), (h, w) = _pair(crop_size), picture.shape[:2]
    y, x = max(0, round((h - height) / 2)), max(0, round((w - width) / 2))
    return picture[y : y + height, x : x + width]


def _crop_efficientnet(picture: np.ndarray, crop_size: int, crop_padding: int = 32, **sampling: str) -> np.ndarray:
    """Cut out the middle square with ``crop_size / (crop_size + crop_padding)`` of the shorter side, and resize it."""
    (h, w), side = picture.shape[:2], crop_size / (crop_size + crop_padding) * min(picture.shape[:2])
    y, x = (max(0, round((length - side) / 2)) for length in (h, w))
    return _resize(picture[y : int(y + side), x : int(x + side)], crop_size, **{"interpolation": "bicubic", **sampling})


def _pad(picture: np.ndarray, size: Pair = 0, pad_to_square: bool = False, pad_val: Any = 0) -> np.ndarray:
    """Pad below and to the right with ``pad_val`` (blue, green, red)."""
    value = pad_val.get("img", 0) if isinstance(pad_val, dict) else pad_val
    (h, w), (width, height) = picture.shape[:2], _pair(max(picture.shape[:2]) if pad_to_square else size)
    padded = np.full((max(h, height), max(w, width), 3), np.broadcast_to(value, 3)[::-1], np.uint8)
    padded[:h, :w] = picture
    return padded


# Steps of test pipelines by their types, with the options that they may have in a config.
STEPS = {
    "Resize": _resize,
    "ResizeEdge": _resize_edge,
    "CenterCrop": _crop,
    "EfficientNetCenterCrop": _crop_efficientnet,
    "Pad": _pad,
}


def _best_class(maps: np.ndarray, size: tuple[int, int], align_corners: bool = False) -> np.ndarray:
    """``[C, h, w]`` -> the class of each pixel of ``size`` (H, W), bilinear; one class at a time, to save memory."""
    # With aligned corners, the centres of the corner pixels stay where they are.
    y, x = (np.linspace(0, n - 1, side, dtype=np.float32) for n, side in zip(maps.shape[1:], size, strict=True))
    columns, rows = np.meshgrid(x, y)
    found, best = np.zeros(size, np.int64), np.full(size, -np.inf, np.float32)
    for label, logits in enumerate(maps):
        resized = (
            cv2.remap(logits, columns, rows, cv2.INTER_LINEAR) if align_corners else cv2.resize(logits, size[::-1])
        )
        found[resized > best] = label
        np.maximum(best, resized, out=best)
    return found


def _paste(mask: np.ndarray, box: np.ndarray, canvas: np.ndarray, threshold: float) -> None:
    """Set the pixels of ``canvas [H, W]`` where ``mask [h, w]``, stretched over the box, reaches the threshold."""
    x1, y1, x2, y2 = box
    weights, spans = [], []
    for low, high, cells, limit in ((y1, y2, mask.shape[0], canvas.shape[0]), (x1, x2, mask.shape[1], canvas.shape[1])):
        start, stop = max(int(np.floor(low)) - 1, 0), min(int(np.ceil(high)) + 1, limit)
        centre = (np.arange(start, stop) + 0.5 - low) / max(high - low, 1e-6) * cells - 0.5
        weights.append(np.maximum(1 - np.abs(centre[:, None] - np.arange(cells)), 0))
        spans.append(slice(start, max(stop, start)))
    canvas[spans[0], spans[1]] = weights[0] @ mask @ weights[1].T >= threshold
