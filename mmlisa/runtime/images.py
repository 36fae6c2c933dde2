"""Reading of images, and the steps of test pipelines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".tif", ".tiff", ".webp")
_METHODS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}


class InputError(ValueError):
    """A mistake in a file, an image or an option. The message names the value and the remedy."""


def read_image(image: Any) -> np.ndarray:
    """Return a file, a Pillow image or an array as ``[H, W, 3]``, RGB, uint8, turned upright by its EXIF entry.

    OpenCV reads files, as it does for the test pipelines: without transparency, and with the upper eight of 16 bits.

    Raises:
        InputError: a file that is missing or damaged, or an array or a Pillow image of another kind.
    """
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise InputError(f"image is {image.dtype} of shape {image.shape}; an array must be uint8 [H, W, 3] (RGB)")
        return image
    if isinstance(image, Image.Image):
        if image.mode in ("I", "F"):
            raise InputError(f"image has Pillow's mode {image.mode!r}; convert its values to 8 bits")
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):  # which Pillow cuts off at 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return np.asarray(image.convert("RGB"))
    # imread knows neither all names on Windows nor turned TIFF files.
    content = np.fromfile(image, np.uint8) if Path(image).is_file() else np.empty(0, np.uint8)
    picture = cv2.imdecode(content, cv2.IMREAD_COLOR) if content.size else None
    if picture is None:
        raise InputError(f"image {str(image)!r} cannot be read: it is missing, damaged or not an image")
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
    "Pad": _pad,
}
