"""Image loading that refuses damaged, oversized and unsupported files."""

import io
import re
from collections.abc import Collection
from typing import Literal

import cv2
import simplejpeg
from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile
from mmengine.fileio import get
from mmengine.logging import print_log
from PIL import Image, UnidentifiedImageError

from mmlisa.registry import TRANSFORMS

# Names that Pillow uses. Damage to these files is noticed or changes single pixels. WebP and most TIFF files have no checksum, so
# damaged ones decode to wrong images without an error.
FORMATS = ("BMP", "JPEG", "MPO", "PNG", "PPM")
MAX_PIXELS = 89_478_485  # above it Pillow warns; 268 MB as 8-bit RGB
# libjpeg's warnings about damaged pixels; its other warnings, such as that of an unknown JFIF version, are harmless.
_JPEG_DAMAGE = re.compile("Corrupt JPEG|Premature end|Invalid|Inconsistent|bogus", re.IGNORECASE)


class BadImageError(ValueError):
    """An image that must not be used; the message names the file and the reason."""


def find_fault(content: bytes, formats: Collection[str] | None = FORMATS, max_pixels: int = MAX_PIXELS) -> str:
    """Check an encoded image by its header and its checksums, without keeping its pixels.

    Args:
        content: the file.
        formats: Pillow's names of the accepted formats; None for all that Pillow reads.
        max_pixels: the largest accepted number of pixels; at most twice :data:`MAX_PIXELS`, where Pillow refuses.

    Returns:
        What is wrong, to follow the name of the file; empty if nothing was found.
    """
    if not content:
        return "is damaged: the file is empty"
    try:
        image = Image.open(io.BytesIO(content))
    except UnidentifiedImageError:
        return "is damaged: it is not an image, or its format is unknown"
    except Image.DecompressionBombError:
        return f"is too large: it has more than {2 * MAX_PIXELS} pixels"
    except Exception as error:  # Pillow's parsers raise many types on damaged headers
        return f"is damaged: {error}"
    width, height = image.size
    if formats is not None and image.format not in formats:
        return f"has the unsupported format {image.format}; supported are {', '.join(formats)}"
    if image.mode == "F":
        return "has floating-point pixels, which are unsupported"
    if width * height > max_pixels:
        return f"is too large: {width} x {height} pixels are more than max_pixels={max_pixels}"
    is_jpeg = content.startswith(b"\xff\xd8")
    try:
        if is_jpeg:  # An eighth of the size in grey: all of the file is parsed, and little is computed.
            simplejpeg.decode_jpeg(content, colorspace="GRAY", min_height=1, min_width=1, strict=True)
        else:
            image.verify()
    except Exception as error:  # as above; simplejpeg raises ValueError, for warnings too
        is_harmless = is_jpeg and isinstance(error, ValueError) and not _JPEG_DAMAGE.search(str(error))
        return "" if is_harmless else f"is damaged: {error}"
    return ""


@TRANSFORMS.register_module()
class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile that refuses damaged, oversized and unsupported files.

    The header is read first, so that a file with too many pixels takes no memory.

    Args:
        on_corrupt: ``'error'`` stops and names the file. ``'skip'`` logs its name, and the dataset takes another sample in
            training; a test set stops there too.
        formats: Pillow's names of the formats to load.
        max_pixels: the largest number of pixels, at most 178,956,970.
        **kwargs: mmcv's.

    Raises:
        BadImageError: a file that must not be used, under ``'error'``.
    """

    def __init__(
        self,
        on_corrupt: Literal["error", "skip"] = "error",
        formats: Collection[str] = FORMATS,
        max_pixels: int = MAX_PIXELS,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.on_corrupt, self.formats, self.max_pixels = on_corrupt, formats, max_pixels

    def transform(self, results: dict) -> dict | None:
        try:
            return self.load(results)
        except BadImageError as error:
            if self.on_corrupt == "error":
                raise BadImageError(f"{error}. LoadImageFromFile(on_corrupt='skip') skips such files") from error
            print_log(f"skipped: {error}", logger="current", level=30)
            return None

    def load(self, results: dict) -> dict:
        """Load the image whatever ``on_corrupt`` is.

        Raises:
            BadImageError: the file must not be used.
        """
        path = results["img_path"]
        if fault := find_fault(get(path, backend_args=self.backend_args), self.formats, self.max_pixels):
            hint = ". Convert it to PNG, or accept undetected damage with formats=(…)"
            raise BadImageError(f"image {path} {fault}{hint * ('unsupported format' in fault)}")
        try:
            return super().transform(results)
        except (AssertionError, AttributeError, cv2.error) as error:  # the ways in which mmcv and OpenCV fail to decode
            raise BadImageError(f"image {path} is damaged: it cannot be decoded") from error
