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
    """An image as the training reads it."""

    size: tuple[int, int]  # width and height
    digest: bytes  # hash of the file
    levels: int  # number of its grey levels if the file has 16 bits, else 0
    notes: list[str]  # what the user should know about such images


def read_bytes(path: Path) -> bytes:
    """Return the content of an image file, or of the image that LabelMe keeps in its JSON file."""
    return b64decode(json.loads(path.read_bytes())["imageData"]) if path.suffix == ".json" else path.read_bytes()


def examine_image(path: Path, stated: tuple[int, int] | None = None) -> Facts:
    """Read an image completely, and refuse one that the training reads otherwise, or of another size than ``stated``."""
    content, is_deep, orientation, levels, notes = read_bytes(path), True, 1, 0, []
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
    if orientation != 1 and _distance(array, upright) > _distance(array, stored):
        raise UserError("EXIF turns it, but not in training; save it upright, without EXIF")
    if is_deep and (raw := mmcv.imfrombytes(content, "unchanged")).dtype == np.uint16:
        levels = len(np.unique(array))
        if 0 < raw.max() < _FEWEST_LEVELS << 8:
            seen = f"{int(raw.max()).bit_length()} bits in 16, of which the training sees {levels} grey levels"
            raise UserError(f"it holds {seen}; convert it to 8 bits")
    check_size(array.shape[1::-1], stated)
    return Facts(array.shape[1::-1], blake2b(content, digest_size=16).digest(), levels, notes)


def check_size(size: tuple[int, int], stated: tuple[int, int] | None) -> None:
    """Refuse an image of another size than its annotation's."""
    if stated and stated != size:
        shown, annotated = ("{}x{}".format(*each) for each in (size, stated))
        hint = "; if EXIF turns it, save it upright without EXIF" if stated[::-1] == size else ""
        raise UserError(f"it has {shown} pixels as the training reads it, but {annotated} in its annotation{hint}")


def _distance(array: np.ndarray, picture: Image.Image) -> float:
    """Return the mean difference of an image (BGR) and a picture of Pillow."""
    if array.shape[1::-1] != picture.size:
        return np.inf
    return float(np.abs(array[..., ::-1] - np.asarray(picture, int)).mean())
