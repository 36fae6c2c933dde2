"""Image files, read as the training reads them."""

import json
from base64 import b64decode
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import cv2
import mmcv
import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mmlisa.errors import UserError

_ORIENTATION = 0x0112  # EXIF's tag
_FEWEST_LEVELS = 64  # grey levels of 16-bit images that the training sees; fewer mean 12 or 14 bits in 16


class Facts(NamedTuple):
    """An image as the training reads it.

    Attributes:
        size: width and height.
        digest: hash of the file.
        levels: number of its grey levels, if the file has 16 bits.
        notes: what the user should know about such images.
    """

    size: tuple[int, int]
    digest: bytes
    levels: int = 0
    notes: tuple[str, ...] = ()


def read_bytes(path: Path) -> bytes:
    """Return the content of an image file, or of the image that LabelMe keeps in its JSON file.

    Raises:
        OSError: the file cannot be read.
    """
    return b64decode(json.loads(path.read_bytes())["imageData"]) if path.suffix == ".json" else path.read_bytes()


def examine_image(path: Path, stated: tuple[int, int] | None = None) -> Facts:
    """Read an image completely.

    Raises:
        UserError: the training cannot read it, reads less than the file holds, or its size is not ``stated`` (width, height).
    """
    content, is_deep, orientation, notes = read_bytes(path), True, 1, []
    try:
        with Image.open(BytesIO(content)) as picture:
            if picture.format == "TIFF" and picture.n_frames > 1:
                notes.append("the training reads the first of several pages")
            if picture.mode in ("RGBA", "LA", "PA") and picture.getextrema()[-1] != (255, 255):
                notes.append("the training does not see their transparency, or fourth channel")
            is_deep = ";16" in str([tile[-1] for tile in picture.tile])
            orientation = picture.getexif().get(_ORIENTATION, 1)
            picture.load()  # OpenCV reads the first half of a file that is cut off, without a word
            stored, upright = picture.convert("RGB"), ImageOps.exif_transpose(picture.convert("RGB"))
    except (UnidentifiedImageError, Image.DecompressionBombError):
        pass  # what OpenCV makes of it counts
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"it is damaged ({error}); export or copy it again") from error
    try:
        array = mmcv.imfrombytes(content)  # as the pipelines do
    except cv2.error:
        array = None
    if array is None:
        raise UserError("OpenCV, which reads the images in training, cannot read it; save it as PNG or JPEG of 8 bits")
    if orientation in (2, 3, 4):
        notes.append("EXIF turns them upside down or mirrors them; their annotations must fit the turned image")
    size, levels = (array.shape[1], array.shape[0]), 0
    if orientation != 1 and _distance(array, upright) > _distance(array, stored):
        raise UserError("EXIF turns it, but not in training; save it upright, without EXIF")
    if is_deep and (raw := mmcv.imfrombytes(content, "unchanged")).dtype == np.uint16:
        levels = len(np.unique(array))
        if 0 < raw.max() < _FEWEST_LEVELS << 8:
            bits = int(raw.max()).bit_length()
            seen = f"of which the training sees {levels} grey levels"
            raise UserError(f"it holds {bits} bits in 16, {seen}; convert it to 8 bits")
    check_size(size, stated)
    return Facts(size, blake2b(content, digest_size=16).digest(), levels, tuple(notes))


def check_size(size: tuple[int, int], stated: tuple[int, int] | None) -> None:
    """Compare the size of an image with that of its annotation.

    Raises:
        UserError: they differ.
    """
    if stated and tuple(stated) != size:
        shown, annotated = ("{}x{}".format(*each) for each in (size, stated))
        hint = "; if EXIF turns it, save it upright without EXIF" if stated[::-1] == size else ""
        raise UserError(f"it has {shown} pixels as the training reads it, but {annotated} in its annotation{hint}")


def _distance(array: np.ndarray, picture: Image.Image) -> float:
    """Return the mean difference of an image (BGR) and a picture of Pillow."""
    if array.shape[1::-1] != picture.size:
        return np.inf
    return float(np.abs(array[..., ::-1] - np.asarray(picture, int)).mean())
