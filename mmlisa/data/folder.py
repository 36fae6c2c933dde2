"""A folder of annotated images: its files, and the data set that a reader makes of them."""

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from os import walk
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from xml.etree import ElementTree

import yaml
from PIL import Image

from mmlisa.datasets import IMAGE_SUFFIXES

Image.MAX_IMAGE_PIXELS = None  # Pillow refuses images above 179 million pixels, which OpenCV reads in the training
SPLITS = ("train", "val", "test")
_SPLIT_WORDS = {"train": "train", "training": "train", "trainval": "train", "test": "test", "testing": "test"}
_SPLIT_WORDS |= dict.fromkeys(("val", "valid", "validation"), "val")
# Words that tell a folder of images or of class maps in the usual layouts.
is_image_word = re.compile(r"images?|imgs?|jpegimages|leftimg8bit|rgb").fullmatch
is_map_word = re.compile(r"masks?|labels?|labelids|labeltrainids|annotations?|segmentationclass|gt|gtfine").fullmatch
_MOST_LEFT_OUT = 0.1  # share of images or annotations; more is an error of the whole folder
_LISTED = 5  # problems of one kind


@dataclass
class Sample:
    """An image and its annotations.

    Attributes:
        path: path of the image, relative to the folder, with forward slashes.
        split: one of :data:`SPLITS`; empty where the folder has no splits.
        size: width and height in pixels, as the annotations state it and, after :meth:`Dataset.examine`, as the image is read.
        objects: detection: COCO annotations without ids; ``category_id`` is the index of the class.
        seg_map: segmentation: the class map, as ``path``.
        label: classification: the index of the class.
        digest: hash of the image file; see :meth:`Dataset.examine`.
    """

    path: str
    split: str = ""
    size: tuple[int, int] | None = None
    objects: list[dict[str, Any]] = field(default_factory=list)
    seg_map: str = ""
    label: int = -1
    digest: bytes = b""


@dataclass
class Dataset:
    """The content of a folder.

    Attributes:
        root: the folder; nothing in it is ever written.
        format: name of its format.
        task: ``'detection'``, ``'segmentation'`` or ``'classification'``.
        classes: names; labels are indices into them.
        samples: the images.
        notes: lines that the user should know.
        has_masks: detection: whether all objects have outlines.
        label_map: segmentation: values of the class maps that stand for another class.
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
        """Read every image completely: set sizes and digests, and leave out the images that cannot be used.

        Raises:
            ValueError: more than a tenth cannot be used; names the first.
        """

        def find_reason(sample: Sample) -> str:
            try:
                sample.size, sample.digest = examine_image(self.root / sample.path, sample.size)
            except ValueError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor() as pool:
            reasons = list(pool.map(find_reason, self.samples))
        self.notes += note_problems([reason for reason in reasons if reason], len(self.samples), "images")
        self.samples = [sample for sample, reason in zip(self.samples, reasons, strict=True) if not reason]

    def to_coco(self, split: str) -> dict[str, Any]:
        """Return the samples of a split as the content of a COCO file; the categories are numbered from 1."""
        images, annotations = [], []
        for sample in self.split(split):
            width, height = sample.size
            images.append({"id": len(images) + 1, "file_name": sample.path, "width": width, "height": height})
            for entry in sample.objects:
                ids = {"id": len(annotations) + 1, "image_id": len(images), "category_id": entry["category_id"] + 1}
                annotations.append({**entry, **ids})
        categories = [{"id": i, "name": name} for i, name in enumerate(self.classes, 1)]
        return {"images": images, "annotations": annotations, "categories": categories}


def note_problems(problems: Sequence[str], total: int, unit: str, remedy: str = "") -> list[str]:
    """Return the first problems and the number of all, as notes.

    Raises:
        ValueError: more than a tenth of ``total`` has a problem; names the first, and ``remedy``.
    """
    number = f"{len(problems)} of {total} {unit} have such problems"
    if len(problems) > _MOST_LEFT_OUT * total:
        raise ValueError(f"{problems[0]} ({number}). {remedy}".rstrip(". "))
    return [*problems[:_LISTED], f"{number} and are left out"] if problems else []


def read_size(path: Path, completely: bool = False) -> tuple[int, int]:
    """Return width and height of an image after the rotation of its EXIF tag, which OpenCV applies.

    Raises:
        ValueError: the header or, with ``completely``, a pixel cannot be read.
    """
    try:
        with Image.open(path) as image:
            if completely:
                image.load()
            turned = image.getexif().get(0x0112) in (5, 6, 7, 8)  # EXIF's tag of the orientation
            return image.size[::-1] if turned else image.size
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path}: the image cannot be read ({error}); export or copy it again") from error


def examine_image(path: Path, stated: tuple[int, int] | None) -> tuple[tuple[int, int], bytes]:
    """Read an image completely; return its size (width, height) and the hash of its file.

    Raises:
        ValueError: a pixel cannot be read, or the size is not ``stated``.
    """
    size = read_size(path, completely=True)
    if stated not in (None, size):
        shown, annotated = ("{}x{}".format(*each) for each in (size, stated))
        raise ValueError(f"{path}: the image has {shown} pixels as EXIF displays it, its annotation {annotated}")
    return size, blake2b(path.read_bytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Evidence:
    """The signs of a format in a folder: ``files`` by their path, or the images by theirs, with their content."""

    files: Mapping[str, Any]


class Folder:
    """The files of a folder that are not hidden, as paths relative to it with forward slashes.

    Raises:
        FileNotFoundError: it is not a folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()  # not resolved: a link stays the name that the user knows
        if not self.root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder; name the folder of the images and their annotations")
        self.paths = sorted(
            (Path(folder, name).relative_to(self.root)).as_posix()
            for folder, _, names in walk(self.root, followlinks=True)
            for name in names
        )
        self.paths = [path for path in self.paths if not path.startswith(".") and "/." not in path]
        self.images = self.files(*IMAGE_SUFFIXES)
        self._known = set(self.images)

    def files(self, *suffixes: str) -> list[str]:
        return [path for path in self.paths if path.lower().endswith(suffixes)]

    def text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8-sig")

    @cached_property
    def documents(self) -> dict[str, Any]:
        """The content of each JSON, XML and YAML file.

        Raises:
            ValueError: a file cannot be parsed.
        """
        found = {}
        for name in self.files(".json", ".xml", ".yaml", ".yml"):
            parse = {".json": json.loads, ".xml": ElementTree.fromstring}.get(Path(name).suffix.lower(), yaml.safe_load)
            try:
                content = parse(self.text(name))
            except (ValueError, ElementTree.ParseError, yaml.YAMLError) as error:
                raise ValueError(f"{self.root / name} cannot be read ({error}); export it again") from error
            if isinstance(content, dict):
                content.pop("imageData", None)  # LabelMe's image itself; of all files it could fill the memory
            found[name] = content
        return found

    def documents_with(self, *keys: str) -> Evidence | None:
        """Return the documents that have these keys or, of XML, this tag."""
        found = {
            name: content
            for name, content in self.documents.items()
            if set(keys) <= (content.keys() if isinstance(content, dict) else {getattr(content, "tag", "")})
        }
        return Evidence(found) if found else None

    def find(self, stated: str, near: str) -> str | None:
        """Return the image that the annotation file ``near`` calls ``stated``; None if it is missing.

        The image lies where the file says, relative to the file or the folder, or beside the file, or in a sibling folder:
        ``images``, Pascal VOC's ``JPEGImages``, or COCO's ``val2017`` of ``annotations/instances_val2017.json``.
        """
        stated = PureWindowsPath(stated).as_posix()  # annotation programs write their system's separators
        here, name = PurePosixPath(near).parent, posixpath.basename(stated)
        split = PurePosixPath(near).stem.rpartition("_")[2]
        siblings = [
            base / sibling / path
            for base in (here, here.parent)
            for sibling in ("images", "JPEGImages", split, f"images/{split}")
            for path in (stated, name)
        ]
        places = [here / stated, PurePosixPath(stated), here / name, *siblings]
        return next((path for path in map(posixpath.normpath, places) if path in self._known), None)


def split_of(path: str, *, with_name: bool = False) -> str:
    """Return the split of a file by its last folder such as ``val``, ``val2017`` or ``val_masks``; empty without such a folder.

    With ``with_name``, a word of the file's name comes first, as in ``instances_train2017.json``.
    """
    *folders, name = PurePosixPath(path).parts
    words = re.findall("[a-z]+", name.lower()) if with_name else []
    for folder in reversed(folders):
        rest = [w for w in re.findall("[a-z]+", folder.lower()) if not (is_image_word(w) or is_map_word(w))]
        words += rest if len(rest) == 1 else []
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), "")


def listed_splits(folder: Folder, kind: str) -> dict[str, str]:
    """Return the splits of Pascal VOC's images by their stems, from the lists in ``ImageSets/<kind>``."""
    lists = [f"ImageSets/{kind}/{name}.txt" for name in ("trainval", "train", "val", "test")]  # the last ones prevail
    found = [path for each in lists for path in folder.files(".txt") if f"/{path}".endswith(f"/{each}")]
    return {
        line.split()[0]: split_of(path, with_name=True)
        for path in found
        for line in folder.text(path).splitlines()
        if line.strip()
    }
