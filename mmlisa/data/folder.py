"""A folder: its files, the images that its annotations name, and what the training will read of them."""

import json
import posixpath
import re
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from io import BytesIO
from os import walk
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from xml.etree import ElementTree

import cv2
import mmcv
import numpy as np
import yaml
from PIL import Image, ImageOps, UnidentifiedImageError

from mmlisa.errors import UserError
from mmlisa.runtime import IMAGE_SUFFIXES

from .likeness import make_thumbnail

SPLITS = ("train", "val", "test")
SPLIT_WORDS = {"train": "train", "training": "train", "trainval": "train", "test": "test", "testing": "test"}
SPLIT_WORDS |= dict.fromkeys(("val", "valid", "validation"), "val")
# Words that tell a folder of images or of annotations in the usual layouts, and words beside the split in a folder's name.
_IMAGE_WORD = r"images?|imgs?|jpegimages|leftimg8bit|rgb"
_MAP_WORD = r"masks?|labels?|label(train)?ids|ann(ot(ation)?)?s?|segmentationclass(png|npy)?|gt|gtfine|groundtruth"
is_map_word = re.compile(_MAP_WORD).fullmatch
is_kind = re.compile(f"{_IMAGE_WORD}|{_MAP_WORD}").fullmatch
_is_filler = re.compile(r"data|dataset|set|split|obj|seg|files?|lists?|dev|instances|coco").fullmatch
_names_classes = re.compile(r"(.*/)?(classes|class_names|labels|obj|_darknet)\.(txt|names|labels)").fullmatch
_is_other_image = re.compile(r".*\.(heic|heif|avif|gif|jp2|dng|cr2|nef|arw|dcm|pgm|ppm|pbm)", re.IGNORECASE).fullmatch
# YAML is parsed as text: classes may be called no, on or 1.0.
_PARSERS = {".json": json.loads, ".xml": ElementTree.fromstring}
_PARSERS |= dict.fromkeys((".yaml", ".yml"), partial(yaml.load, Loader=yaml.BaseLoader))
_MOST_LEFT_OUT = 0.1  # share of images or annotations; more is an error of the whole folder
_KINDS = 5  # most kinds of problems that are listed
_ORIENTATION = 0x0112  # EXIF's tag
TURNED = "EXIF turns or mirrors them in training, too; their annotations must fit the turned image"
_FEWEST_LEVELS = 64  # grey levels of 16-bit images that the training sees; fewer mean 12 or 14 bits in 16


@dataclass(frozen=True)
class Evidence:
    """The signs of a format in a folder."""

    why: str  # what was found, for the user
    lacks: str = ""  # what is missing, and what to do; empty if the folder can be read
    tasks: Sequence[str] = ("detection", "segmentation")  # what it can be read for, the usual task first
    content: Any = None  # what the reader needs
    doubt: str = ""  # why something else may be meant, unless the user names the task


class Facts(NamedTuple):
    """An image as the training reads it."""

    size: tuple[int, int]  # width and height
    digest: bytes  # hash of the file
    levels: int  # number of its grey levels if the file has 16 bits, else 0
    notes: list[str]  # what the user should know about such images
    thumbnail: bytes  # see likeness.make_thumbnail


class Folder:
    """The files of a folder that are not hidden, as paths relative to it with forward slashes.

    ``ignore`` are values of class maps that are not annotated. A missing folder is a FileNotFoundError.
    """

    def __init__(self, root: str | Path, ignore: Sequence[int] = ()) -> None:
        self.root = Path(root).absolute()  # not resolved: a link stays the name that the user knows
        if not self.root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder; name the folder of the images and their annotations")
        paths = [Path(here, name) for here, _, names in walk(self.root, followlinks=True) for name in names]
        paths = [path.relative_to(self.root).as_posix() for path in paths]
        self.paths = sorted(path for path in paths if not re.search(r"(^|/)(\.|__MACOSX/)", path))
        self.images = self.files(*IMAGE_SUFFIXES)  # those that OpenCV reads
        self.names_of_classes = [path for path in self.paths if _names_classes(path)]
        self.broken: dict[str, str] = {}  # why a document cannot be parsed
        self.moved: list[tuple[str, str]] = []  # where images should be, and where they were found instead
        self.notes: list[str] = []  # lines that the user should know
        self.ignore, self.splits_from = ignore, ""  # where the splits are stated, as a line of the summary
        self._known, self._facts = set(self.images), dict[str, Future[Facts]]()
        self._by_name, self._twins, self._by_layout = defaultdict(list), defaultdict(list), defaultdict(set)
        for path in map(PurePosixPath, self.images):
            self._twins[layout_of(path.parent), path.stem].append(str(path))
            if not _is_map(path, whole=True):
                for name in {path.name.lower(), path.stem.lower()}:
                    self._by_name[name].append(str(path))
            for parent in path.parents:
                self._by_layout[layout_of(parent)].add(str(parent))
        # Images that OpenCV does not read and that lack a twin in another format.
        stems = {posixpath.splitext(path)[0] for path in self.images}
        self.others = [path for path in filter(_is_other_image, self.paths) if posixpath.splitext(path)[0] not in stems]

    def files(self, *suffixes: str) -> list[str]:
        return [path for path in self.paths if path.lower().endswith(suffixes)]

    def text(self, path: str) -> str:
        try:
            return (self.root / path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{self.root / path} is not text in UTF-8; save it in this encoding") from error

    @cached_property
    def documents(self) -> dict[str, Any]:
        """The content of each JSON, XML and YAML file; those that cannot be parsed are in ``broken``."""
        parsed = {}
        for name in self.files(*_PARSERS):
            try:
                parsed[name] = _PARSERS[Path(name).suffix.lower()]((self.root / name).read_bytes())
            except (ValueError, ElementTree.ParseError, yaml.YAMLError) as error:
                self.broken[name] = f"it cannot be read ({' '.join(str(error).split())}); export it again"
            if isinstance(content := parsed.get(name), dict) and "imageData" in content:
                content["imageData"] = bool(content["imageData"])  # those of all files could fill the memory
        return parsed

    def documents_with(self, *keys: str) -> dict[str, Any]:
        """Return the documents that have these keys or, of XML, this tag."""
        found = {name: c if isinstance(c, dict) else {getattr(c, "tag", None)} for name, c in self.documents.items()}
        return {name: self.documents[name] for name, its in found.items() if all(key in its for key in keys)}

    def class_names(self, near: str = "") -> tuple[str, list[str]]:
        """Return the nearest file with a name per line, such as ``classes.txt``, and its names; empty if there is none."""
        texts = {path: self.text(path) for path in self.names_of_classes}
        for here in (*PurePosixPath(near).parents, None):
            nearest = [path for path in texts if here in (PurePosixPath(path).parent, None)]
            if len({texts[path] for path in nearest}) > 1:
                raise UserError(f"{self.root}: {nearest[0]} and {nearest[1]} have different names; keep one of them")
            if nearest:
                return nearest[0], [line.strip() for line in texts[nearest[0]].splitlines() if line.strip()]
        return "", []

    def look(self, path: str, stated: tuple[int, int] | None = None) -> Facts:
        """Read an image as the training will; the error says why it cannot be used. The first call reads all, in parallel."""
        if path not in self._facts:
            new = {path, *self.images} - self._facts.keys()
            with ThreadPoolExecutor() as pool:
                self._facts |= {each: pool.submit(examine_image, self.root / each) for each in new}
        facts = self._facts[path].result()
        check_size(facts.size, stated)
        return facts

    def find(self, stated: Sequence[str], near: str) -> list[str | None]:
        """Return the images that the file ``near`` names, None for each that is missing.

        An image lies in the split's own folder, such as ``images/val2017`` for ``annotations/instances_val2017.json``, beside the
        file, in a folder of the same layout, or where its path from the root says. If none of the folders that the file states
        exists here, its images are found by the ends of their paths, at last by their names where these are unique.
        """
        # Programs write their system's separators.
        names = [PureWindowsPath(str(name).strip()).as_posix() for name in stated]
        here, layout = PurePosixPath(near).parent, layout_of(PurePosixPath(near).parent)
        of_split = (*layout, re.split(r"[_.]", PurePosixPath(near).stem.lower())[-1])
        places = [*sorted(self._by_layout.get(of_split, ())), str(here), *sorted(self._by_layout.get(layout, ())), ""]
        # Class maps may have the names of their images.
        places.sort(key=lambda place: _is_map(PurePosixPath(place, "x")))

        def exact(name: str) -> str | None:
            paths = (posixpath.normpath(posixpath.join(place, name)) for place in places)
            return next((path for path in paths if path in self._known), None)

        images = [exact(name) for name in names]
        if any(path and "/" in name for path, name in zip(images, names, strict=True)):
            return images
        counts = Counter(posixpath.basename(name).lower() for name in names)
        for index, name in enumerate(names):
            *parents, bare = name.split("/")
            if images[index] is None and counts[bare.lower()] == 1:
                tails = [exact("/".join([*parents[start:], bare])) for start in range(1, len(parents) + 1)]
                same = _photos(self._by_name.get(bare.lower(), []))
                is_one = len({posixpath.splitext(path)[0] for path in same}) == 1
                images[index] = next(filter(None, tails), same[0] if is_one else None)
                if images[index] and parents:
                    self.moved.append((str(stated[index]), images[index]))
        return images

    def find_one(self, stated: str, near: str) -> str | None:
        """Return the image that the file ``near`` names, or else that of its own name; None if both are missing."""
        (image,) = self.find([stated], near)
        if not image and len(twins := self.find_twins(near)) == 1:
            (image,) = twins
            if PurePosixPath(stated).stem not in ("", PurePosixPath(near).stem):
                self.moved.append((stated, image))
        return image

    def find_twins(self, path: str) -> list[str]:
        """Return the images of a file's own name in folders of the same layout, those beside it if there are any.

        Masks and overlays count only where there is no other image.
        """
        twins = _photos(self._twins.get((layout_of(PurePosixPath(path).parent), PurePosixPath(path).stem), []))
        return [twin for twin in twins if posixpath.dirname(twin) == posixpath.dirname(path)] or twins

    def read_list(self, path: str) -> list[str]:
        """Return the images that a text file lists: a path, a name or a stem per line, perhaps before other words."""
        lines = [line.strip() for line in self.text(path).splitlines() if line.strip()]
        images = self.find(lines, path)
        if not any(images):
            images = self.find(lines := [line.split()[0] for line in lines], path)
        lost = [line for line, image in zip(lines, images, strict=True) if not image]
        if any(images):
            problems = [(self.root / path, f"its image '{line}' is missing") for line in lost]
            self.notes += note_problems(problems, len(lines), "lines")
        return [image for image in images if image]

    def listed_splits(self, kind: str = "Main") -> dict[str, str]:
        """Return the split of each image that a list such as ``val.txt`` or ``ImageSets/<kind>/val.txt`` names."""
        lists = [path for path in self.files(".txt") if "ImageSets/" not in path or f"ImageSets/{kind}/" in path]
        splits = {path: split_of(f"{PurePosixPath(path).stem}/x") for path in lists if not self.find_twins(path)}
        by_image: dict[str, str] = {}
        named = [path for path in splits if splits[path]]
        for path in sorted(named, key=lambda path: ("trainval" not in path, SPLITS.index(splits[path]))):
            if images := self.read_list(path):  # the last lists prevail
                self.splits_from = f"{self.splits_from or 'splits: stated in'} {path}"
                twins = [twin for image in images for twin in self.find_twins(image)]  # the same in other formats
                by_image |= dict.fromkeys(twins, splits[path])
        return by_image


def _words(part: str) -> list[str]:
    return re.split(r"[_\-. ]", part.lower())


def _is_map(path: PurePosixPath, *, whole: bool = False) -> bool:
    """Return whether an image may be a class map, by a word of its folders' names, or with ``whole`` by a whole name."""
    words = (word for part in path.parent.parts for word in ([part.lower()] if whole else _words(part)))
    kinds = [word for word in words if is_kind(word)]
    return bool(kinds and is_map_word(kinds[-1]))


def _photos(paths: list[str]) -> list[str]:
    """Return the images that are not class maps; all if there are no others, as in ``face_mask`` of people with masks."""
    return [path for path in paths if not _is_map(PurePosixPath(path))] or paths


def layout_of(folder: PurePosixPath) -> tuple[str, ...]:
    """Return the parts of a folder without words such as ``images`` and ``labels``; an image and its annotation agree in them."""
    parts = ([word for word in _words(part) if not is_kind(word)] for part in folder.parts)
    return tuple("_".join(words) for words in parts if words)


def split_of(path: str, *, with_name: bool = False) -> str:
    """Return the split of a file by its last folder such as ``val``, ``val2017`` or ``val_masks``; empty without such a folder.

    With ``with_name``, a word of the file's name comes first, as in ``instances_train2017.json``.
    """
    *folders, name = PurePosixPath(path).parts
    named = {SPLIT_WORDS[word] for word in re.findall("[a-z]+", name.lower()) if word in SPLIT_WORDS}
    if with_name and len(named) == 1:
        return named.pop()
    for folder in reversed(folders):
        words = [word for word in re.findall("[a-z]+", folder.lower()) if not (is_kind(word) or _is_filler(word))]
        if len(words) == 1 and words[0] in SPLIT_WORDS:
            return SPLIT_WORDS[words[0]]
    return ""


def note_problems(problems: Sequence[tuple[object, str]], total: int, unit: str) -> list[str]:
    """Return a note on each kind of problem, with the first example; problems of more than a tenth of ``total`` are a UserError.

    ``problems`` are pairs of a place and a sentence. Sentences that differ only in numbers and quotations are of one kind.
    """
    kinds = defaultdict(list)
    for where, problem in problems:
        kinds[re.sub(r"'[^']*'|\[[^]]*\]|\([^)]*\)|[\d.-]+", "", problem)].append(f"{where}: {problem}")
    listed = sorted(kinds.values(), key=len, reverse=True)
    if len(problems) > _MOST_LEFT_OUT * total:
        same = f", {len(listed[0])} of them for this reason" if len(listed) > 1 else ""
        share = f"{len(problems)} of {total} {unit} cannot be used{same}; a tenth may be left out"
        raise UserError(f"{listed[0][0]} ({share})")
    notes = [f"left out: {len(each)} of {total} {unit}, the first {each[0]}" for each in listed[:_KINDS]]
    return notes + [f"left out: {sum(map(len, listed[_KINDS:]))} {unit} for other reasons"] * (len(listed) > _KINDS)


def read_bytes(path: Path) -> bytes:
    """Return the content of an image file, or of the image that LabelMe keeps in its JSON file."""
    return b64decode(json.loads(path.read_bytes())["imageData"]) if path.suffix == ".json" else path.read_bytes()


def examine_image(path: Path, stated: tuple[int, int] | None = None) -> Facts:
    """Read an image completely; one that the training reads otherwise, or of another size than ``stated``, is a UserError."""
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
    if orientation in range(2, 9):
        notes.append(TURNED)
    if orientation != 1 and _distance(array, upright) > _distance(array, stored):
        raise UserError("EXIF turns it, but not in training; save it upright, without EXIF")
    if is_deep and (raw := mmcv.imfrombytes(content, "unchanged")).dtype == np.uint16:
        levels = len(np.unique(array))
        if 0 < raw.max() < _FEWEST_LEVELS << 8:
            seen = f"{int(raw.max()).bit_length()} bits in 16, of which the training sees {levels} grey levels"
            raise UserError(f"it holds {seen}; convert it to 8 bits")
    check_size(array.shape[1::-1], stated)
    digest = blake2b(content, digest_size=16).digest()
    return Facts(array.shape[1::-1], digest, levels, notes, make_thumbnail(array))


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
