"""A folder of annotated images: what is in it, and the data set that a reader makes of it."""

import os
import re
import struct
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import cv2
import numpy as np
from PIL import Image

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".tif", ".tiff", ".webp")
# Of images that OpenCV does not decode everywhere.
_UNREAD_SUFFIXES = (".avif", ".gif", ".heic", ".heif", ".jp2", ".jxl")
TASKS = ("detection", "segmentation", "classification")
# Words that tell a folder of images or of class maps, or a file of a pair, in the usual layouts.
is_image_word = re.compile(r"images?|imgs?|jpegimages|leftimg8bit|rgb", re.I).fullmatch
is_map_word = re.compile(
    r"masks?|labels?|label(train)?ids|annotations?|seg|segmentations?|segmentationclass|gt|gtfine|maps", re.I
).fullmatch
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_SPLITS |= {"test": "test", "testing": "test", "trainval": "train"}
_MIN_SIDE = 8  # pixels of an image's shorter side
_MAX_PIXELS = 89_000_000  # of an image; beyond it, Pillow warns
_MAX_LEFT_OUT = 0.1  # share of images or annotations that may be left out; more is an error of the whole folder


@dataclass
class Sample:
    """An image and what is annotated in it.

    Attributes:
        path: of the image, relative to the folder, with forward slashes.
        split: ``'train'``, ``'val'`` or ``'test'``; empty where the folder has no splits.
        size: width and height in pixels, as the annotations state it and, after :meth:`Dataset.examine`, as the image is read.
        objects: of detection, COCO annotations without ids; ``category_id`` is the index of the class.
        seg_map: of segmentation, the class map, as ``path``.
        label: of classification, the index of the class.
        hash: a perceptual hash of the image, 256 bits; see :meth:`Dataset.examine`.
        format: Pillow's name of the image's format; see :meth:`Dataset.examine`.
    """

    path: str
    split: str = ""
    size: tuple[int, int] | None = None
    objects: list[dict[str, Any]] = field(default_factory=list)
    seg_map: str = ""
    label: int = -1
    hash: np.ndarray | None = None
    format: str = ""


class Problems(list[str]):
    """What is left out of a data set: a line each that names the file and the remedy."""

    def check(self, total: int, what: str) -> None:
        """Accept a data set of which at most a tenth is left out.

        Raises:
            ValueError: more than a tenth of ``total`` is left out.
        """
        if len(self) > _MAX_LEFT_OUT * total:
            raise ValueError(self[0] + (f" ({len(self)} such problems in {total} {what})" if len(self) > 1 else ""))

    def shown(self, what: str) -> list[str]:
        """The first five, and the number of all."""
        return self[:5] + [f"number of {what} left out for such problems: {len(self)}"] * bool(self)


@dataclass
class Dataset:
    """A data set that a reader has read.

    Attributes:
        root: the folder; nothing in it is ever written.
        format: the name of its format.
        task: one of :data:`TASKS`.
        classes: names; labels are indices into them.
        samples: the images.
        notes: lines that the user should know.
        has_masks: of detection, whether all objects have outlines.
        label_map: of segmentation, values of the class maps that stand for another class.
    """

    root: Path
    format: str
    task: str
    classes: list[str]
    samples: list[Sample]
    notes: list[str] = field(default_factory=list)
    has_masks: bool = False
    label_map: dict[int, int] = field(default_factory=dict)

    def split(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.split == name]

    def examine(self) -> None:
        """Reads every image: sets sizes and perceptual hashes, leaves out those that cannot be used.

        Raises:
            ValueError: more than a tenth cannot be used; names the first.
        """
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(partial(_examine, self.root), self.samples))
        problems = Problems(problem for problem, _ in results if problem)
        problems.check(len(self.samples), "images")
        self.notes += problems.shown("images") + [note for _, note in results if note][:5]
        self.samples = [sample for sample, (problem, _) in zip(self.samples, results, strict=True) if not problem]

    def to_coco(self, split: str) -> dict[str, Any]:
        """The samples of a split as the content of a COCO file; the categories are numbered from 1."""
        images, annotations = [], []
        for sample in self.split(split):
            width, height = sample.size
            images.append({"id": len(images) + 1, "file_name": sample.path, "width": width, "height": height})
            for entry in sample.objects:
                ids = {"id": len(annotations) + 1, "image_id": len(images), "category_id": entry["category_id"] + 1}
                annotations.append({**entry, **ids})
        categories = [{"id": i, "name": name} for i, name in enumerate(self.classes, 1)]
        return {"images": images, "annotations": annotations, "categories": categories}


def _examine(root: Path, sample: Sample) -> tuple[str, str]:
    """Why an image cannot be used, and what to note about it; empty if there is nothing to say."""
    from .transforms import FORMATS, find_fault  # imports PyTorch

    path, note = root / sample.path, ""
    try:
        with Image.open(path) as image:
            width, height = displayed_size(image)
            turned = image.size != (width, height)
            if image.format == "WEBP" and _orientation(image) != 1:
                return f"{path}: an EXIF tag turns it, which OpenCV may ignore in WebP; save it without the tag", ""
            if min(width, height) < _MIN_SIDE:
                return (
                    f"{path}: the image has {width}x{height} pixels; replace it by one of {_MIN_SIDE} or more a side",
                    "",
                )
            if width * height > _MAX_PIXELS:
                raise Image.DecompressionBombError
            if image.mode == "CMYK":
                note = f"{path}: the image is CMYK and is read as RGB; if its colours look wrong, save it as RGB"
            sample.format = image.format
            if image.mode.startswith("I"):  # of 16 bits, convert("L") would cut all above 255
                note = f"{path}: of the image's 16 bits per pixel the upper 8 are read; stretch its contrast if it looks black"
                image = image.convert("I").point(lambda value: value / 256)
            image.draft("L", (64, 64))
            grey = np.asarray(image.convert("L").resize((17, 16), Image.Resampling.BOX), np.int16)
    except Image.DecompressionBombError:
        return f"{path}: the image has more than {_MAX_PIXELS:,} pixels; cut it into tiles of at most 4000 a side", ""
    except (OSError, SyntaxError, ValueError) as error:
        return f"{path}: the image cannot be read ({error}); export or copy it again", ""
    content = path.read_bytes()
    if fault := find_fault(content, formats=None):
        return f"{path}: the image {fault}; export or copy it again", ""
    if sample.format not in FORMATS and not _is_decodable(content):
        return f"{path}: OpenCV cannot decode this file, whose format is {sample.format}; save it as JPEG or PNG", ""
    if sample.size not in (None, (width, height)):
        stated = "{}x{}".format(*sample.size)
        turn = ", turned by its EXIF tag" if turned else ""
        remedy = "save it without the tag" if turned else "export the annotations of this image again"
        return f"{path}: the image has {width}x{height} pixels{turn}, its annotation says {stated}; {remedy}", ""
    sample.size = width, height
    # dHash: whether each pixel is lighter than its left neighbour
    sample.hash = np.packbits(grey[:, 1:] > grey[:, :-1])
    return "", note


def _is_decodable(content: bytes) -> bool:
    """Whether OpenCV decodes a file: Pillow reads more formats, such as GIF and AVIF."""
    try:
        return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) is not None
    except cv2.error:
        return False


def displayed_size(image: Image.Image) -> tuple[int, int]:
    """Width and height after the rotation that a camera wrote into the file, which OpenCV applies."""
    return image.size[::-1] if _orientation(image) in (5, 6, 7, 8) else image.size


def _orientation(image: Image.Image) -> int:
    """The orientation in a file's EXIF entry; 1 (upright) for a TIFF, which Pillow turns as it opens it."""
    exif = Image.Exif()  # not image.getexif(), which also reads XMP, unlike OpenCV
    with suppress(SyntaxError, struct.error):  # of a damaged EXIF entry, which OpenCV ignores
        if image.format == "PNG":
            image.load()  # the entry may follow the pixels
        exif.load(image.info.get("exif", b""))
        return exif.get(0x0112, 1)
    return 1


class Folder:
    """The files of a folder, as paths relative to it with forward slashes; symbolic links are followed.

    Raises:
        FileNotFoundError, NotADirectoryError: it is not a folder.
        ValueError: it holds no image, or one whose path is not UTF-8 or breaks lists, or more than a tenth of the images have
            other formats.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(os.path.abspath(root))  # not resolved: a link stays the name that the user knows
        if not self.root.is_dir():
            kind = NotADirectoryError if self.root.exists() else FileNotFoundError
            raise kind(f"{root} is not a folder; name the folder that holds the images and their annotations")
        files = sorted(walk(self.root))
        self.images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
        self._others = [name for name in files if not name.lower().endswith(IMAGE_SUFFIXES)]
        unread = self.files(*_UNREAD_SUFFIXES)
        not_utf_8 = re.compile("[\ud800-\udfff]").search  # Python's form of other bytes
        if bad := next(filter(not_utf_8, [*self.images, *unread]), None):
            raise ValueError(f"{os.fsencode(self.root / bad)!r}: this path is not UTF-8; rename the file or folder")
        problems = Problems(
            f"{self.root / name}: images of this format are not read; save it as JPEG or PNG" for name in unread
        )
        problems.check(len(self.images) + len(unread), "images")
        self.notes = problems.shown("images")  # for the user; the readers add more
        if not self.images:
            raise ValueError(f"{root} holds no image ({', '.join(IMAGE_SUFFIXES)}); name the folder that holds them")
        # Lists of images have a line for each, and separate paths by tabs; mmpretrain strips the lines.
        if bad := next((name for name in self.images if "\t" in name or name.splitlines() != [name.strip()]), None):
            raise ValueError(
                f"{str(self.root / bad)!r}: this path holds a tab or a line break, or begins with a space; rename the file or "
                "folder"
            )

    def files(self, *suffixes: str) -> list[str]:
        return [name for name in self._others if name.lower().endswith(suffixes)]

    @cached_property
    def image_set(self) -> set[str]:
        return set(self.images)

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The images by their names without folders, in composed characters."""
        found: dict[str, list[str]] = {}
        for path in self.images:
            found.setdefault(_composed(PurePosixPath(path).name), []).append(path)
        return found

    def text(self, name: str) -> str:
        """The text of a file.

        Raises:
            ValueError: it is not UTF-8.
        """
        try:
            return (self.root / name).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.root / name} is not UTF-8 text ({error}); save it in that encoding") from error

    def size(self, name: str) -> tuple[int, int] | None:
        """Width and height of an image; None if it cannot be read."""
        try:
            with Image.open(self.root / name) as image:
                return displayed_size(image)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return None

    def find(self, name: str, near: str, split: str = "") -> str | None:
        """The image that an annotation file ``near`` calls ``name``, a path of any operating system; None if it is missing.

        An exact path comes first. Of the other images with this file name, in ``split`` or outside of all splits, it is the one
        whose path shares most words with ``name`` and ``near``, then one in a folder such as ``images``.

        Raises:
            ValueError: several images fit equally well.
        """
        words, folder = PureWindowsPath(name).as_posix().split("/"), PurePosixPath(near).parent
        for candidate in (os.path.normpath(folder.joinpath(*words)), "/".join(words)):
            if candidate in self.image_set:
                return candidate
        named = self.by_name.get(_composed(words[-1]), [])
        found = [path for path in named if not split or split_of(path) in ("", split)]
        shared = {*map(_composed, (*words, *folder.parts))}
        ranks = [
            (len(shared & {*parts}), any(map(is_image_word, parts)))
            for parts in (PurePosixPath(_composed(path)).parts for path in found)
        ]
        highest = max(ranks, default=None)
        best = [path for path, rank in zip(found, ranks, strict=True) if rank == highest]
        if len(best) > 1:
            raise ValueError(
                f"{self.root / near}: its image {name!r} may be {best[0]} or {best[1]}; write its path relative to "
                f"{self.root}, or move one of both elsewhere"
            )
        return best[0] if best else None


def _composed(name: str) -> str:
    """A name with each accent in its letter, as browsers write it; macOS stores letters and accents apart."""
    return unicodedata.normalize("NFC", name)


def walk(root: Path) -> Iterator[str]:
    """The files of a folder that are not hidden, relative to it."""
    seen = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:  # links can form circles
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        inner = Path(folder).relative_to(root).as_posix()
        yield from (name if inner == "." else f"{inner}/{name}" for name in files if not name.startswith("."))


def split_of(path: str, words: bool = False) -> str:
    """The split of a path: that of its last folder such as ``val``, ``val2017``, ``val_masks`` or ``val_set``, else empty.

    With ``words``, a word of the file's name comes first.
    """
    *folders, name = PurePosixPath(path).parts
    parts = []
    for folder in folders:
        rest = [word for word in re.split(r"[\d_-]+", folder.lower()) if not (is_image_word(word) or is_map_word(word))]
        parts.append("".join(rest).removesuffix("set"))
    if words:
        parts += re.findall("[a-z]+", name.lower())
    return next((_SPLITS[part] for part in reversed(parts) if part in _SPLITS), "")


def folder_words(name: str) -> list[str]:
    """The words of a folder such as ``train_masks`` or ``images_png``, without the format; other names as a whole.

    A folder such as ``lung_segmentation`` may hold images and class maps.
    """
    words = [word for word in re.split(r"[_\-.]", name) if f".{word.lower()}" not in IMAGE_SUFFIXES]
    known = all(is_image_word(word) or is_map_word(word) or word.lower() in _SPLITS for word in words)
    return words if words and known else [name]
