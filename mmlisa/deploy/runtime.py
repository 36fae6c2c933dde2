"""Run models that ``mmlisa export`` wrote. This file needs NumPy, Pillow and onnxruntime only, and can be copied into a product.

model = load("detector.onnx")
found = model.predict("street.jpg")
for box, label, score in zip(found.boxes, found.labels, found.scores):
    print(model.classes[label], score, box)
"""

import json
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FORMAT = 1  # of the metadata
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # EXIF orientation: Image.Transpose


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

    Raises FileNotFoundError for a missing file, ValueError for one that is not of ``mmlisa export``.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ValueError(f"{str(path)!r} has the suffix {path.suffix!r}; the runtime reads .onnx files")
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r} does not exist; `mmlisa export CONFIG CHECKPOINT OUT.onnx` writes it")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    options.intra_op_num_threads = threads or 0
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers or ["CPUExecutionProvider"])
    except Exception as error:  # of onnxruntime's own types, which derive from Exception
        raise ValueError(f"{str(path)!r} is not an ONNX file that onnxruntime can run: {error}") from error
    metadata = session.get_modelmeta().custom_metadata_map
    name = session.get_inputs()[0].name
    return Model(path, metadata, session.get_inputs()[0].shape, lambda image: session.run(None, {name: image}))


class Model:
    """An exported model.

    Args:
        path: its file, for messages.
        metadata: of the file, JSON by key.
        shape: of the input, with a name or None for what is free.
        run: the prepared input -> the network's outputs, by onnxruntime or another engine such as OpenVINO.

    Raises ValueError for a file that ``mmlisa export`` did not write, or a newer version of it.
    """

    def __init__(
        self, path: Path, metadata: dict[str, str], shape: Sequence[Any], run: Callable[[np.ndarray], list[np.ndarray]]
    ) -> None:
        if "mmlisa_format" not in metadata:
            raise ValueError(f"{str(path)!r} has no metadata of mmlisa; write it with `mmlisa export` (without --raw)")
        self.metadata = {key[7:]: json.loads(value) for key, value in metadata.items() if key.startswith("mmlisa_")}
        if self.metadata["format"] > FORMAT:
            raise ValueError(f"{str(path)!r} has format {self.metadata['format']}; update mmlisa, which reads {FORMAT}")
        self.path, self.shape, self.run = Path(path), list(shape), run
        self.task, self.classes = self.metadata["task"], self.metadata["classes"]

    def predict(self, image: Any, score_threshold: float | None = None) -> Prediction:
        """Predict on a file, a Pillow image, or an array ``[H, W, 3]`` (RGB, uint8).

        Detections below ``score_threshold`` (None: the file's own) are dropped. Raises ValueError, TypeError or
        FileNotFoundError for an image that cannot be read or that the network cannot take.
        """
        if self.task == "video":
            raise ValueError(f"{str(self.path)!r} classifies clips: call run() with an array of shape {self.shape}")
        picture = read_image(image)
        prepared, size = self.prepare(picture)
        try:
            outputs = self.run(prepared)
        except Exception as error:
            shape = "x".join(map(str, size))
            raise ValueError(f"{str(self.path)!r} cannot take an image of {shape} after resizing: {error}") from error
        threshold = self.metadata["score_threshold"] if score_threshold is None else score_threshold
        return self.finish(outputs, size, picture.shape[:2], threshold)

    def prepare(self, picture: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """``[H, W, 3]`` (RGB, uint8) -> the input ``[1, 3, h, w]``, and (h, w) of the resized image without padding."""
        for step in self.metadata["steps"]:
            picture = _STEPS[step["step"]](picture, step)
        size = picture.shape[:2]
        least = self.metadata.get("least", size)  # to which the config pads
        taken = [n if isinstance(n, int) else max(pair) for n, *pair in zip(self.shape[2:], size, least, strict=True)]
        if np.less(taken, size).any():
            raise ValueError(
                f"{str(self.path)!r} takes images of {taken[0]}x{taken[1]} (H, W) only, and this one has {size[0]}x{size[1]} "
                f"after resizing; export it without --size, or with --size {(side := max(*taken, *size))} {side}"
            )
        mean, std = (np.float32(self.metadata[key]) for key in ("mean", "std"))
        padded = np.full((*taken, 3), self.metadata.get("border", mean), np.float32)  # the mean becomes zero
        padded[: size[0], : size[1]] = picture[..., :: -1 if self.metadata["channels"] == "BGR" else 1]
        padded = np.rint(padded).astype(np.uint8) if self.metadata["uint8"] else (padded - mean) / std
        return np.ascontiguousarray(padded.transpose(2, 0, 1))[None], size

    def finish(
        self, outputs: Sequence[np.ndarray], size: tuple[int, int], original: tuple[int, int], threshold: float = 0.0
    ) -> Prediction:
        """Outputs of the network -> results at the original size (H, W); ``size``: see :meth:`prepare`."""
        if self.task == "classification":
            return Prediction(probabilities=outputs[0][0])
        (height, width), (h, w) = original, size
        if self.task == "segmentation":
            return Prediction(segmentation=_best_class(outputs[0][0][:, :h, :w], original))
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
    """A file, a Pillow image or an array -> ``[H, W, 3]``, RGB, uint8, turned as its EXIF entry says.

    Transparency is dropped, grey is repeated, and of 16 bits the upper eight are kept, as OpenCV does. Raises FileNotFoundError
    or ValueError for a file that is missing or damaged or an array of another dtype or layout, TypeError for anything else.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise ValueError(f"image is {image.dtype} of shape {image.shape}; an array must be uint8 [H, W, 3] (RGB)")
        return image
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise FileNotFoundError(f"image {str(image)!r} does not exist")
        try:
            with Image.open(image) as opened:
                opened.load()
                return read_image(opened)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"image {str(image)!r} cannot be read: {error}") from error
    if not isinstance(image, Image.Image):
        raise TypeError(f"image is a {type(image).__name__}; it must be a file name, a Pillow image or an array")
    with suppress(KeyError, SyntaxError, struct.error):  # no turn, or a damaged EXIF entry, which OpenCV ignores, too
        (exif := Image.Exif()).load(image.info.get("exif", b""))  # not getexif(), which also reads XMP, unlike OpenCV
        image = image.transpose(_TURNS[exif.get(0x0112)])
    if image.mode.startswith("I"):
        grey = (np.asarray(image).astype(np.uint32) >> 8).clip(0, 255).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    return np.asarray(image.convert("RGB"))


def _resize(picture: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """To ``scale`` (W, H); with ``keep_ratio`` to the largest size whose sides fit into it, in either orientation."""
    height, width = picture.shape[:2]
    target_w, target_h = step["scale"]
    if step.get("keep_ratio"):
        factor = min(max(target_w, target_h) / max(height, width), min(target_w, target_h) / min(height, width))
        target_w, target_h = (max(int(side * factor + 0.5), 1) for side in (width, height))
    return _interpolate(picture, (target_h, target_w), step)


def _resize_edge(picture: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """The shorter (or longer) side to ``scale``."""
    (height, width), scale = picture.shape[:2], step["scale"]
    by_width = {"short": width < height, "long": width > height, "width": True, "height": False}[step["edge"]]
    size = (int(scale * height / width), scale) if by_width else (scale, int(scale * width / height))
    return _interpolate(picture, size, step)


def _crop(picture: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """The middle, of ``size`` (W, H)."""
    (width, height), (h, w) = step["size"], picture.shape[:2]
    y, x = max(0, round((h - height) / 2)), max(0, round((w - width) / 2))
    return picture[y : y + height, x : x + width]


_STEPS = {"resize": _resize, "resize_edge": _resize_edge, "crop": _crop}


def _interpolate(picture: np.ndarray, size: tuple[int, int], step: dict[str, Any]) -> np.ndarray:
    if step["backend"] == "pillow":
        return np.asarray(Image.fromarray(picture).resize(size[::-1], Image.Resampling[step["method"].upper()]))
    if picture.shape[:2] == size:
        return picture
    # OpenCV's own arithmetic on 8 bits: weights in units of 1 / 2048, no smoothing where the image shrinks.
    (rows, down), (columns, across) = (_taps(*n, step["method"]) for n in zip(picture.shape, size, strict=False))
    down, across = (np.rint(weight * 2048).astype(np.int64)[..., None] for weight in (down, across))
    wide = sum(picture[:, i].astype(np.int64) * w for i, w in zip(columns, across, strict=True))
    if step["method"] == "bilinear":
        total = sum((w[:, None] * (wide[i] >> 4)) >> 16 for i, w in zip(rows, down, strict=True))
        return ((total + 2) >> 2).astype(np.uint8)
    total = sum(w[:, None] * wide[i] for i, w in zip(rows, down, strict=True))
    return ((total + (1 << 21)) >> 22).clip(0, 255).astype(np.uint8)


def _taps(old: int, new: int, method: str = "bilinear") -> tuple[np.ndarray, np.ndarray]:
    """Indices ``[k, new]`` and weights ``[k, new]`` of the old pixels that make up each new one (half-pixel centres)."""
    position = (np.arange(new) + 0.5) * (old / new) - 0.5
    position = position.clip(0, old - 1) if method == "bilinear" else position
    first = np.floor(position).astype(int)
    t = (position - first).astype(np.float32)
    if method == "bilinear":
        weight, offset = np.stack([1 - t, t]), 0
    else:  # bicubic with a = -0.75
        outer, inner = (lambda d: ((-0.75 * d + 3.75) * d - 6) * d + 3), (lambda d: (1.25 * d - 2.25) * d * d + 1)
        weight, offset = np.stack([outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]), -1
    return (first + offset + np.arange(len(weight))[:, None]).clip(0, old - 1), weight


def _best_class(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """``[C, h, w]`` -> the class of each pixel of ``size`` (H, W), bilinear; in bands, as whole maps may take gigabytes."""
    (rows, down), (columns, across) = (_taps(*n) for n in zip(maps.shape[1:], size, strict=True))
    found = np.empty(size, np.int64)
    for band in np.array_split(np.arange(size[0]), -(-size[0] // 16)):
        tall = sum(maps[:, i[band]] * w[band, None] for i, w in zip(rows, down, strict=True))
        found[band] = sum(tall[..., i] * w for i, w in zip(columns, across, strict=True)).argmax(axis=0)
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
