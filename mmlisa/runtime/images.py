"""Reading of images, and the steps of test pipelines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from PIL import Image, ImageOps

T = TypeVar("T")
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
    """Return an image as ``[H, W, 3]``, RGB, uint8, turned upright by its EXIF entry.

    OpenCV reads files, as it does for the test pipelines: without transparency, and with the upper eight of 16 bits.

    Args:
        image: a path; the content of a file, as bytes or as an open file; a Pillow image; an array ``[H, W, 3]`` or a tensor
            ``[3, H, W]``, RGB, uint8.

    Raises:
        InputError: a file that is missing or damaged, an address, an image of another kind or without pixels.
    """
    if isinstance(image, Image.Image):
        return _from_pillow(image)
    if isinstance(image, np.ndarray):
        return _checked(image, "an array must be uint8 [H, W, 3] (RGB)")
    if hasattr(image, "permute"):  # a tensor of PyTorch, which need not be installed
        if str(image.dtype) != "torch.uint8" or image.ndim != 3 or image.shape[0] != 3:
            shape = list(image.shape)
            raise InputError(f"image is {image.dtype} of shape {shape}; a tensor must be uint8 [3, H, W] (RGB)")
        return _checked(image.detach().cpu().numpy().transpose(1, 2, 0), "it must have pixels")
    name = repr(str(image)) if isinstance(image, str | Path) else f"of type {type(image).__name__}"
    content = np.frombuffer(_read_content(image), np.uint8)
    try:
        picture = cv2.imdecode(content, cv2.IMREAD_COLOR) if content.size else None
    except cv2.error:  # more pixels than OpenCV allows
        picture = None
    if picture is None:
        raise InputError(f"image {name} cannot be read: it is missing, damaged or not an image")
    return np.ascontiguousarray(picture[..., ::-1])


def _from_pillow(image: Image.Image) -> np.ndarray:
    if image.mode in ("I", "F"):
        raise InputError(f"image has Pillow's mode {image.mode!r}; convert its values to 8 bits")
    try:
        image = ImageOps.exif_transpose(image)
        image.load()
    except OSError as error:
        raise InputError(f"image of type {type(image).__name__} cannot be read: {error}") from error
    if image.mode.startswith("I;16"):  # which Pillow cuts off at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return _checked(np.asarray(image.convert("RGB")), "it must have pixels")


def _checked(values: np.ndarray, rule: str) -> np.ndarray:
    if values.dtype != np.uint8 or values.ndim != 3 or values.shape[2] != 3 or not values.size:
        raise InputError(f"image is {values.dtype} of shape {values.shape}; {rule}")
    return values


def _read_content(image: Any) -> bytes:
    """Return the bytes of a file; none if it is missing."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if hasattr(image, "read"):
        content = image.read()
        if not isinstance(content, bytes):
            raise InputError(f"image.read() returns a {type(content).__name__}; open it with 'rb', or pass its bytes")
        return content
    if not isinstance(image, str | Path):
        kinds = "a path, bytes, an open file, a Pillow image, an array [H, W, 3] or a tensor [3, H, W]"
        raise InputError(f"image is of type {type(image).__name__}; pass {kinds}")
    check_address(image)
    # OpenCV's imread knows neither all names on Windows nor turned TIFF files.
    return Path(image).read_bytes() if Path(image).is_file() else b""


def check_address(image: str | Path) -> None:
    """Refuse an address, by which a caller could make this machine ask any server."""
    if "://" in str(image):
        raise InputError(f"image {str(image)!r} is an address; download it, and pass its bytes")


def one_or_all(image: Any, predict: Callable[[Iterable[Any]], Iterator[T]]) -> T | list[T] | Iterator[T]:
    """Return the prediction of an image, a list for a list of images, or an iterator for an iterator."""
    if isinstance(image, list | tuple):
        return list(predict(image))
    if isinstance(image, Iterator) and not hasattr(image, "read"):  # an open file is an iterator of lines
        return predict(image)
    return next(predict([image]))


def one_size_batches(items: Iterable[T], batch: int, size: Callable[[T], Any]) -> Iterator[list[T]]:
    """Yield lists of at most ``batch`` items that follow each other and have one size, so that nothing is padded."""
    chunk: list[T] = []
    for item in items:
        if chunk and (len(chunk) == batch or size(item) != size(chunk[0])):
            yield chunk
            chunk = []
        chunk.append(item)
    if chunk:
        yield chunk


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
