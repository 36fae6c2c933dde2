"""Run models that ``mmlisa export`` wrote. This file needs NumPy, OpenCV, Pillow and onnxruntime or OpenVINO only; copy it into a
product.

model = load("detector.onnx")
found = model.predict("street.jpg")
for box, label, score in zip(found.boxes, found.labels, found.scores):
    print(model.classes[label], score, box)
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

FORMAT = 1  # version of the metadata
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")
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
    masks: np.ndarray | list[dict] | None = None  # [N, H, W], bool; of tiles, COCO's run-length encodings (decode_mask)
    segmentation: np.ndarray | None = None  # [H, W], the class of each pixel
    probabilities: np.ndarray | None = None  # [C], one per class


def load(
    path: str | Path, *, backend: str = "auto", threads: int | None = None, providers: Sequence[str] | None = None
) -> "Model":
    """Open a file that ``mmlisa export`` wrote.

    Args:
        path: the ``.onnx`` file.
        backend: ``'onnxruntime'``; ``'openvino'``, on the CPU in fp32; or ``'auto'``: OpenVINO where it is installed and
            ``providers`` is None.
        threads: number of threads; None for all cores.
        providers: onnxruntime's execution providers; None for the CPU.

    Raises:
        ValueError: an unknown backend, or a file that ``mmlisa export`` did not write. The backends raise their own errors.
    """
    if backend == "auto":
        backend = "openvino" if providers is None and find_spec("openvino") else "onnxruntime"
    if backend == "openvino":
        return Model(path, *_openvino(path, threads))
    if backend == "onnxruntime":
        return Model(path, *_onnxruntime(path, threads, providers))
    raise ValueError(f"backend={backend!r}; it must be 'auto', 'onnxruntime' or 'openvino'")


Engine = tuple[dict[str, str], Sequence[Any], Callable[[np.ndarray], list[np.ndarray]]]  # see the arguments of Model


def _onnxruntime(path: str | Path, threads: int | None, providers: Sequence[str] | None) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors: the warnings are about nodes that onnxruntime cannot fold
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(str(path), options, providers or ["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    metadata = session.get_modelmeta().custom_metadata_map
    return metadata, taken.shape, lambda image: session.run(None, {taken.name: image})


def _openvino(path: str | Path, threads: int | None) -> Engine:
    import openvino

    core = openvino.Core()
    graph = core.read_model(str(path))
    info = graph.get_rt_info()
    metadata = {key: entry.value for key, entry in info["framework"].items()} if "framework" in info else {}
    options = {"INFERENCE_PRECISION_HINT": "f32"}  # otherwise bfloat16 on CPUs that have it
    compiled = core.compile_model(graph, "CPU", options | ({"INFERENCE_NUM_THREADS": threads} if threads else {}))
    shape = [axis.get_length() if axis.is_static else None for axis in graph.input().partial_shape]
    return metadata, shape, lambda image: list(compiled(image).values())


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

    def predict(
        self, image: Any, score_threshold: float | None = None, *, tile: int | None = None, overlap: float = 0.2
    ) -> Prediction:
        """Predict on a file, a Pillow image, or an array ``[H, W, 3]`` (RGB, uint8).

        Args:
            image: see :func:`read_image`.
            score_threshold: lowest score of a detection; None for the threshold of the file.
            tile: side in pixels of the tiles on which a detector predicts (:class:`Tiles`); None for the whole image.
            overlap: share of a tile that the next one repeats.

        Raises:
            ValueError: the image is missing, damaged or of another size than the network takes; ``tile`` with a model that is
                not a detector; see :func:`check_tiles`.
        """
        if self.task == "video":
            raise ValueError(f"{self.path!r} classifies clips: call run() with an array of shape {self.shape}")
        picture = read_image(image)
        threshold = self.metadata["score_threshold"] if score_threshold is None else score_threshold
        if tile is not None:
            return self._predict_tiles(picture, threshold, tile, overlap)
        return self._predict(picture, threshold)

    def _predict(self, picture: np.ndarray, threshold: float) -> Prediction:
        prepared, size = self.prepare(picture)
        return self.finish(self.run(prepared), size, picture.shape[:2], threshold)

    def _predict_tiles(self, picture: np.ndarray, threshold: float, tile: int, overlap: float) -> Prediction:
        if self.task != "detection":
            raise ValueError(f"tile={tile}: {self.path!r} is not a detector; leave it out")
        tiles = Tiles(picture.shape[:2], tile, overlap)
        for index, (x1, y1, x2, y2) in enumerate(tiles.windows):
            tiles.add(index, self._predict(picture[y1:y2, x1:x2], 0.0))
        found = tiles.merge()
        kept = int((found.scores >= threshold).sum())  # the best first
        return Prediction(
            found.boxes[:kept], found.scores[:kept], found.labels[:kept], found.masks and found.masks[:kept]
        )

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
            stride, limit = self.metadata.get("mask_stride"), self.metadata["mask_threshold"]
            for mask, box, canvas in zip(outputs[3][wanted], boxes, found.masks, strict=True):
                if stride:
                    canvas[:] = _enlarge(mask, stride, (height / h, width / w), original) > np.log(limit / (1 - limit))
                else:
                    _paste(mask, box, canvas, limit)
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


def read_images(source: str | Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and array (see :func:`read_image`) of an image, of each frame of a video, or of all of these in a folder.

    Raises:
        ValueError: an image that cannot be read, a video without a readable frame, or a folder without images.
    """
    path, name = Path(source), ""
    if path.is_dir():
        suffixes = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES)
        for each in sorted(file for file in path.rglob("[!.]*") if file.suffix.lower() in suffixes):
            for name, picture in read_images(each):
                yield name, picture
    elif path.suffix.lower() in VIDEO_SUFFIXES:
        video = cv2.VideoCapture(str(path))
        number = 0
        while (frame := video.read()[1]) is not None:
            name, number = f"{path}:{number}", number + 1
            yield name, np.ascontiguousarray(frame[..., ::-1])
    else:
        name = str(path)
        yield name, read_image(path)
    if not name:
        raise ValueError(f"source {str(path)!r} contains no readable image; check the path and the format")


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


def _enlarge(logits: np.ndarray, stride: int, factors: Sequence[float], size: Sequence[int]) -> np.ndarray:
    """``[h, w]`` of the padded image -> ``size`` (H, W) of the original, in the two steps of RTMDet-Ins."""
    whole = cv2.resize(logits, None, fx=stride, fy=stride)
    height, width = (int(np.ceil(side * factor)) for side, factor in zip(whole.shape, factors, strict=True))
    return cv2.resize(whole, (width, height))[: size[0], : size[1]]


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


# --- tiles -------------------------------------------------------------------------------------------------------------------


def check_tiles(tile: int, overlap: float) -> None:
    """Check the size of tiles and the share that neighbours have in common.

    Raises:
        ValueError: ``tile`` is smaller than 64 pixels, or ``overlap`` is not in [0, 1).
    """
    if tile < 64:
        raise ValueError(f"tile={tile} is too small for objects and their surroundings; use 64 pixels or more")
    if not 0 <= overlap < 1:
        raise ValueError(
            f"overlap={overlap} is not a share of a tile that leaves a step; use 0 or more, and less than 1"
        )


class Tiles:
    """Overlapping tiles of an image, and the merging of what a detector finds in them.

    Tiles start at multiples of ``round(tile * (1 - overlap))``; the last one of a row or column is moved back to the border of
    the image, as in mmseg's slide mode. An image smaller than a tile is one tile of its own size.

    A detection counts if its centre is nearer to the middle of its tile than to that of the next tile, or up to a quarter of the
    overlap beyond. The next tile contains more of the objects that do not count.

    Two detections of one class in different tiles are the same object if the part of their boxes that both tiles contain has an
    IoU of at least 0.5. The better one stays. If its tile cuts it (the box ends within 1/64 of the tile's side from an inner
    border), the best of each other tile is joined to it, boxes and masks, and so on along a row of tiles.

    Args:
        size: (height, width) of the image.
        tile: side of a tile in pixels.
        overlap: share of a tile that the next one repeats.

    Attributes:
        windows: ``[T, 4]``, x1, y1, x2, y2 of each tile, row by row.

    Raises:
        ValueError: see :func:`check_tiles`.
    """

    def __init__(self, size: tuple[int, int], tile: int, overlap: float) -> None:
        check_tiles(tile, overlap)
        stride = max(round(tile * (1 - overlap)), 1)
        self.size, self._margin = size, tile / 64
        spans, limits = zip(*(_spans(side, tile, stride) for side in size), strict=True)
        self.windows, self._limits = (
            np.array([(x1, y1, x2, y2) for y1, y2 in rows for x1, x2 in columns]) for rows, columns in (spans, limits)
        )
        self._boxes, self._scores = [np.zeros((0, 4), np.float32)], [np.zeros(0, np.float32)]
        self._labels, self._owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self._parts: list[tuple[int, int, np.ndarray]] | None = None

    def add(self, index: int, found: Prediction) -> None:
        """Keep the detections of tile ``index`` that count; boxes and masks are in pixels of the tile."""
        corner = self.windows[index, :2]
        boxes = found.boxes + np.tile(corner, 2).astype(np.float32)
        centres, limits = (boxes[:, :2] + boxes[:, 2:]) / 2, self._limits[index]
        counted = np.flatnonzero(((centres >= limits[:2]) & (centres < limits[2:])).all(axis=1))
        self._boxes.append(boxes[counted])
        self._scores.append(found.scores[counted])
        self._labels.append(found.labels[counted])
        self._owners.append(np.full(len(counted), index))
        if found.masks is not None:
            self._parts = (self._parts or []) + [_cut_out(found.masks[i], *corner) for i in counted]

    def merge(self) -> Prediction:
        """Return the objects of the image in its pixels, the best first."""
        boxes, scores, labels, owners = map(np.concatenate, (self._boxes, self._scores, self._labels, self._owners))
        order = np.argsort(-scores, kind="stable")
        boxes, scores, labels, owners = boxes[order], scores[order], labels[order], owners[order]
        groups = self._group(boxes, labels, owners)
        best = [group[0] for group in groups]
        joined = [np.append(boxes[group, :2].min(axis=0), boxes[group, 2:].max(axis=0)) for group in groups]
        found = Prediction(np.array(joined, np.float32).reshape(-1, 4), scores[best], labels[best])
        if self._parts is not None:
            found.masks = [encode_mask([self._parts[order[i]] for i in group], self.size) for group in groups]
        return found

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
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return int(x), int(y), np.zeros((0, 0), bool)
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(bool)  # a copy; the mask can be freed
    return int(x + columns[0]), int(y + rows[0]), part


def encode_mask(parts: Sequence[tuple[int, int, np.ndarray]], size: tuple[int, int]) -> dict[str, Any]:
    """Return the union of masks ``[h, w]``, each with the place (x, y) of its corner, as COCO's run-length encoding.

    ``size`` is (height, width) of the image. Memory and time depend on the object, not on the image.
    """
    pixels = np.unique(np.concatenate([_column_major(part, size[0]) for part in parts]))
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


def _column_major(part: tuple[int, int, np.ndarray], height: int) -> np.ndarray:
    x, y, mask = part
    rows, columns = np.nonzero(mask)
    return (x + columns) * height + y + rows


def decode_mask(encoded: dict[str, Any]) -> np.ndarray:
    """Return a mask ``[H, W]`` (bool) of COCO's run-length encoding."""
    x, y, part = decode_part(encoded)
    mask = np.zeros(encoded["size"], bool)
    mask[y : y + part.shape[0], x : x + part.shape[1]] = part
    return mask


def decode_part(encoded: dict[str, Any]) -> tuple[int, int, np.ndarray]:
    """Return the smallest part that contains an encoded mask: x and y of its corner, and the part ``[h, w]`` (bool)."""
    counts, number, shift = [], 0, 0
    text = encoded["counts"]
    for byte in text.encode() if isinstance(text, str) else text:
        bits = byte - 48
        number |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            number -= (1 << shift) if bits & 16 else 0
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number = shift = 0
    edges = np.cumsum(counts)
    starts, stops = edges[0:-1:2], edges[1::2]
    if not len(stops):
        return 0, 0, np.zeros((0, 0), bool)
    height = encoded["size"][0]
    lengths = stops - starts
    pixels = np.repeat(starts - np.append(0, np.cumsum(lengths)[:-1]), lengths) + np.arange(lengths.sum())
    columns, rows = np.divmod(pixels, height)
    x, y = int(columns.min()), int(rows.min())
    part = np.zeros((int(rows.max()) - y + 1, int(columns.max()) - x + 1), bool)
    part[rows - y, columns - x] = True
    return x, y, part
