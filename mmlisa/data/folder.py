"""A folder: its files, and the images that its annotations name."""

import json
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from os import walk
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from xml.etree import ElementTree

import yaml

from mmlisa.datasets import IMAGE_SUFFIXES
from mmlisa.errors import UserError

from .dataset import SPLITS, note_problems
from .images import Facts, check_size, examine_image

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


@dataclass(frozen=True)
class Evidence:
    """The signs of a format in a folder."""

    why: str  # what was found, for the user
    lacks: str = ""  # what is missing, and what to do; empty if the folder can be read
    tasks: Sequence[str] = ("detection", "segmentation")  # what it can be read for, the usual task first
    content: Any = None  # what the reader needs
    doubt: str = ""  # why something else may be meant, unless the user names the task


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
        self._known = set(self.images)
        self._facts: dict[str, Future[Facts]] = {}
        self._by_name, self._by_stem, self._by_layout = defaultdict(list), defaultdict(list), defaultdict(set)
        for path in map(PurePosixPath, self.images):
            self._by_stem[str(path.with_suffix(""))].append(str(path))
            if not any(is_map_word(word.lower()) for word in path.parts):
                for name in {path.name.lower(), path.stem.lower()}:
                    self._by_name[name].append(str(path))
            for parent in path.parents:
                self._by_layout[layout_of(parent)].add(str(parent))
        # Images that OpenCV does not read and that lack a twin in another format.
        others = filter(_is_other_image, self.paths)
        self.others = [path for path in others if posixpath.splitext(path)[0] not in self._by_stem]

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
        for name in self.files(".json", ".xml", ".yaml", ".yml"):
            # YAML is parsed as text: classes may be called no, on or 1.0.
            load_yaml = partial(yaml.load, Loader=yaml.BaseLoader)
            parse = {".json": json.loads, ".xml": ElementTree.fromstring}.get(Path(name).suffix.lower(), load_yaml)
            try:
                parsed[name] = parse((self.root / name).read_bytes())
            except (ValueError, ElementTree.ParseError, yaml.YAMLError) as error:
                self.broken[name] = f"it cannot be read ({' '.join(str(error).split())}); export it again"
            if isinstance(content := parsed.get(name), dict) and "imageData" in content:
                content["imageData"] = bool(content["imageData"])  # those of all files could fill the memory
        return parsed

    def documents_with(self, *keys: str) -> dict[str, Any]:
        """Return the documents that have these keys or, of XML, this tag."""

        def keys_of(content: Any) -> set[str]:
            return set(content) if isinstance(content, dict) else {getattr(content, "tag", None)}

        return {name: content for name, content in self.documents.items() if {*keys} <= keys_of(content)}

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
        """Read an image as the training will, once; the error says why it cannot be used."""
        if path not in self._facts:
            self.look_at([path])
        facts = self._facts[path].result()
        check_size(facts.size, stated)
        return facts

    def look_at(self, paths: Sequence[str]) -> None:
        """Read images in parallel for :meth:`look`."""
        with ThreadPoolExecutor() as pool:
            self._facts |= {path: pool.submit(examine_image, self.root / path) for path in paths}

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
                same = self._by_name.get(bare.lower(), ())
                is_one = len({posixpath.splitext(path)[0] for path in same}) == 1
                images[index] = next(filter(None, tails), same[0] if is_one else None)
                if images[index] and parents:
                    self.moved.append((str(stated[index]), images[index]))
        return images

    def find_one(self, stated: str, near: str) -> str | None:
        """Return the image that the file ``near`` names, or else that of its own name; None if both are missing."""
        (image,) = self.find([stated], near)
        if not image and (image := self.find_beside(near)) and PurePosixPath(stated).stem not in ("", Path(near).stem):
            self.moved.append((stated, image))
        return image

    def find_beside(self, near: str) -> str | None:
        """Return the image of an annotation file's own name, beside it or in a folder of the same layout."""
        here, stem = PurePosixPath(near).parent, PurePosixPath(near).stem
        places = [str(here), *sorted(self._by_layout.get(layout_of(here), ()))]
        images = next(filter(None, (self._by_stem.get(posixpath.normpath(f"{place}/{stem}")) for place in places)), [])
        return images[0] if len(images) == 1 else None

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
        splits = {path: split_of(f"{PurePosixPath(path).stem}/x") for path in lists if not self.find_beside(path)}
        by_image: dict[str, str] = {}
        named = [path for path in splits if splits[path]]
        for path in sorted(named, key=lambda path: ("trainval" not in path, SPLITS.index(splits[path]))):
            if images := self.read_list(path):  # the last lists prevail
                self.splits_from = f"{self.splits_from or 'splits: stated in'} {path}"
                twins = [twin for image in images for twin in self._by_stem[posixpath.splitext(image)[0]]]
                by_image |= dict.fromkeys(twins, splits[path])
        return by_image


def layout_of(folder: PurePosixPath) -> tuple[str, ...]:
    """Return the parts of a folder without words such as ``images`` and ``labels``; an image and its annotation agree in them."""
    parts = ([word for word in re.split(r"[_\-. ]", part.lower()) if not is_kind(word)] for part in folder.parts)
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
