"""The data set that a reader makes of a folder: images and objects of all formats, their checks, and what is left out.

Polygons stay as they are: supervision's readers draw each into a mask, which takes ``objects x height x width`` bytes per image
and rounds the outline.
"""

import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from pycocotools import mask as coco

from mmlisa.datasets.annotations import encode, find_misplaced, find_reason, find_repeated, find_shrunk, is_polygon
from mmlisa.errors import UserError

from .folder import SPLITS, Folder, note_problems, split_of

UNKNOWN = 255  # label of pixels that are not annotated
IGNORED, BACKGROUND = "__ignore__", "_background_"  # LabelMe's labels of a region that does not count, and of no object
_CLASSES = 30  # most that are listed
_SIZES = {"small": 0, "medium": 32**2, "large": 96**2}  # COCO's least areas


@dataclass
class Sample:
    """An image and its annotations."""

    path: str  # relative to the folder, with forward slashes; a LabelMe file's if that contains the image
    split: str = ""  # one of SPLITS; empty where the folder has no splits
    size: tuple[int, int] = (0, 0)  # width and height in pixels, as the training reads them
    objects: list[dict[str, Any]] = field(default_factory=list)  # COCO's, without ids; category_id is the class's index
    seg_map: str = ""  # path of the class map; empty if it is to be drawn from the objects
    counts: Counter[int] = field(default_factory=Counter)  # number of pixels of each label in the class map
    label: int = -1  # index of the class in a classification
    digest: bytes = b""  # hash of the image file
    thumbnail: bytes = b""  # see likeness.make_thumbnail

    def counted(self) -> list[dict[str, Any]]:
        """Return the objects that are not crowds."""
        return [entry for entry in self.objects if not entry["iscrowd"]]

    def count(self) -> Counter[int]:
        """Return the number of objects that count, or of pixels, of each label; of a classification, the label once."""
        labels = [self.label] if self.label >= 0 else [entry["category_id"] for entry in self.counted()]
        return self.counts or Counter(labels)


@dataclass
class Dataset:
    """The content of a folder."""

    root: Path  # nothing in it is ever written
    task: str  # 'detection', 'segmentation' or 'classification'
    classes: list[str]  # labels are indices into them
    samples: list[Sample]
    notes: list[str] = field(default_factory=list)  # lines that the user should know
    has_masks: bool = False  # whether the objects have outlines
    values: dict[int, int] | None = None  # label of each value of class maps that a training cannot read as they are
    facts: list[str] = field(default_factory=list)  # first lines of the summary: format, splits, depth of the images

    def split(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.split == name]

    def count(self, name: str) -> Counter[int]:
        """Return the number of objects, pixels or images of each label in a split."""
        return sum((sample.count() for sample in self.split(name)), Counter())

    def table(self) -> list[list[str]]:
        """Return the number of each class in each split, the head first: objects, also by size, images, or shares of pixels."""
        unit = {"detection": "objects", "segmentation": "pixels", "classification": "images"}[self.task]
        sizes = _SIZES if unit == "objects" else {}
        head, rows = ["class"], [[name] for name in self.classes]
        for split in filter(self.split, SPLITS):
            head += [f"{unit} in {split}", *sizes]
            counts, by_size = self.count(split), Counter()
            for entry in (entry for sample in self.split(split) for entry in sample.counted()):
                by_size[entry["category_id"], bisect(list(_SIZES.values()), math.prod(entry["bbox"][2:]))] += 1
            for label, row in enumerate(rows):
                row.append(f"{counts[label] / max(1, counts.total()):.1%}" if unit == "pixels" else str(counts[label]))
                row += [str(by_size[label, index]) for index, _ in enumerate(sizes, 1)]
        return [head, *rows]

    def summary(self) -> list[str]:
        """Return lines that let a person check what was read: format, splits, classes, sizes and notes."""
        splits = [name for name in SPLITS if self.split(name)]
        (_, unit, *_), *rows = self.table()
        each = [f"{row[0]} {'/'.join(row[1 :: (len(row) - 1) // len(splits)])}" for row in rows]
        sizes = sorted({sample.size for sample in self.samples} - {(0, 0)}, key=math.prod)
        sizes = ["{}x{}".format(*size) for size in sizes]
        sides = sorted(math.sqrt(math.prod(e["bbox"][2:])) for sample in self.samples for e in sample.counted())
        images = ", ".join(f"{name} {len(self.split(name))}" for name in splits)
        empty = sum(not sample.count() for sample in self.samples)
        return [
            *self.facts,
            f"images: {images}; {f'from {sizes[0]} to {sizes[-1]} pixels; ' if sizes else ''}{empty} without annotations",
            f"{unit.split()[0]} per class in {'/'.join(splits)}: {', '.join(each[:_CLASSES])}{', …' * (len(each) > _CLASSES)}",
            *[f"objects: from {sides[0]:.0f} to {sides[-1]:.0f} pixels, the root of their area" for _ in sides[:1]],
            *self.notes,
        ]


class Objects:
    """The images and objects that a reader finds, and what it cannot use.

    ``splits`` has the split of each image, None stands for the lists of the folder. An image that they lack is in no split.
    """

    def __init__(self, folder: Folder, splits: dict[str, str] | None = None) -> None:
        self.folder, self.splits = folder, folder.listed_splits() if splits is None else splits
        self.samples: dict[tuple[str, str], Sample] = {}  # by split and path
        self.entries: list[tuple[Sample, str, dict[str, Any]]] = []  # image, place in the files, object
        self.lost: list[tuple[object, str]] = []  # images that cannot be used, each with the reason
        self.bad: list[tuple[object, str]] = []  # objects that cannot be used

    def add_image(
        self, file: str, path: str | None, size: Sequence[Any] = (), split: str = "", stated: Any = ""
    ) -> Sample | None:
        """Add the image ``path`` that ``file`` annotates, and return it; None if it is missing or cannot be used.

        ``size`` (width, height), ``split`` and ``stated``, the image's name, are what the file says. An image that is annotated
        twice is a UserError.
        """
        try:
            if path is None:
                raise UserError(f"its image {str(stated)!r} is missing; put it beside this file or into images/")
            facts = self.folder.look(path, tuple(int(float(side)) for side in size) if all(size) else None)
        except ValueError as error:
            self.lost.append((self.folder.root / (path or file), str(error)))
            return None
        split = split or self.splits.get(path, "" if self.splits else split_of(path))
        if (split, path) in self.samples:
            raise UserError(f"{self.folder.root / file}: {path} is annotated twice; keep one of both entries")
        return self.samples.setdefault(
            (split, path), Sample(path, split, facts.size, digest=facts.digest, thumbnail=facts.thumbnail)
        )

    def add(
        self,
        sample: Sample | None,
        where: str,
        label: str,
        corners: Sequence[float] | None,
        outlines: Any = None,
        crowd: bool = False,
        area: float = 0,
    ) -> None:
        """Add an object of an image from left, top, right and bottom or, without them, around its outlines."""
        if sample is None or (label := label.strip()) == BACKGROUND:
            return
        polygons = [np.float32(outline).reshape(-1, 2) for outline in outlines or () if is_polygon(outline)]
        if corners is None and not polygons:
            self.bad.append((where, "it has no outline of three or more points"))
            return
        if corners is None:
            corners = (*np.concatenate(polygons).min(0).tolist(), *np.concatenate(polygons).max(0).tolist())
        box = [corners[0], corners[1], corners[2] - corners[0], corners[3] - corners[1]]
        entry = {"bbox": box, "area": area or sum(map(cv2.contourArea, polygons)) or box[2] * box[3]}
        entry |= {"segmentation": outlines or [], "category_id": label, "iscrowd": int(crowd or label == IGNORED)}
        self.entries.append((sample, where, entry))

    def dataset(self, task: str, classes: list[str], unit: str = "images", **fields: Any) -> Dataset:
        """Return the data set of the images, with notes on those that are left out."""
        if task == "classification":
            self._drop_contradictions()
        samples = [*self.samples.values()]
        notes = note_problems(self.lost, len(samples) + len(self.lost), unit)
        return Dataset(self.folder.root, task, classes, samples, notes, **fields)

    def _drop_contradictions(self) -> None:
        """Remove the images that have several classes, as equal files."""
        labels = defaultdict(set)
        for sample in self.samples.values():
            labels[sample.digest].add(sample.label)
        for key, sample in [*self.samples.items()]:
            if len(labels[sample.digest]) > 1:
                del self.samples[key]
                where = self.folder.root / sample.path
                self.lost.append((where, "the same image has another class elsewhere; keep it in one"))

    def finish(self, classes: Iterable[str] = ()) -> Dataset:
        """Return the data set of the objects that a training can use; without ``classes``, their names are the classes."""
        root, usable, boxes = self.folder.root, [], 0
        classes = classes or sorted({entry["category_id"] for _, _, entry in self.entries})
        classes = [name for name in dict.fromkeys(map(str.strip, classes)) if name not in (IGNORED, BACKGROUND)]
        has_masks = 2 * sum(bool(entry["segmentation"]) for _, _, entry in self.entries) > len(self.entries)
        dataset = self.dataset("detection", classes, has_masks=has_masks)
        for sample, where, entry in self.entries:
            if reason := find_reason(entry, sample.size, has_masks and bool(entry["segmentation"])):
                self.bad.append((where, reason))
            else:
                usable.append((sample, entry))
        dataset.notes += note_problems(self.bad, len(usable) + len(self.bad), "objects")
        entries = [entry for _, entry in usable]
        sizes = [sample.size for sample, _ in usable]
        if doubts := find_misplaced(entries, sizes) + find_repeated(entries, [sample.path for sample, _ in usable]):
            raise UserError(f"{root}: {doubts[0]}")
        dataset.notes += [f"warning: {doubt}" for doubt in find_shrunk(entries, sizes)]
        for sample, entry in usable:
            entry["category_id"] = 0 if entry["category_id"] == IGNORED else classes.index(entry["category_id"])
            if not has_masks:
                del entry["segmentation"]
            elif not entry["segmentation"]:
                (x, y, w, h), boxes = entry["bbox"], boxes + 1
                entry["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            sample.objects.append(entry)
        crowds, ignored = sum(entry["iscrowd"] for _, entry in usable), f"crowds, difficult or {IGNORED}"
        if crowds == len(usable):
            hint = f"all {crowds} are {ignored}" if crowds else "none is annotated"
            raise UserError(f"{root}: no image has an object that can be learnt; {hint}")
        if crowds:
            dataset.notes.append(f"ignored in training and test: {crowds} of {len(usable)} objects, {ignored}")
        if boxes:
            dataset.notes.append(f"{boxes} of {len(usable)} objects have no outline; that of their box is taken")
        used = {path for _, path in self.samples}
        if unused := [root / path for path in self.folder.images if path not in used]:
            dataset.notes.append(f"{len(unused)} images are in no annotation file and not used, the first {unused[0]}")
        return dataset


def draw_maps(dataset: Dataset) -> None:
    """Turn a data set of outlines (UserError for boxes) into one of class maps, which are drawn when they are written."""
    if not dataset.has_masks:
        raise UserError(f"{dataset.root}: --task segmentation needs outlines, but the objects are boxes")
    dataset.task, dataset.classes = "segmentation", ["background", *dataset.classes]
    check_number_of_labels(dataset)
    for sample in dataset.samples:
        for entry in sample.objects:
            entry["category_id"] += 1
        sample.counts = count_values(draw_map(sample))
        del sample.counts[UNKNOWN]


def check_number_of_labels(dataset: Dataset) -> None:
    """Raise UserError if class maps of one byte cannot hold the labels beside :data:`UNKNOWN`."""
    if (number := len(dataset.classes)) > UNKNOWN:
        raise UserError(f"{dataset.root}: class maps hold {UNKNOWN} labels, but there are {number} classes; merge some")


def draw_map(sample: Sample) -> np.ndarray:
    """Return the outlines of an image as labels ``[H, W]``, uint8: smaller objects over larger ones, crowds as unknown."""
    labels = np.zeros(sample.size[::-1], np.uint8)
    for entry in sorted(sample.objects, key=lambda entry: (not entry["iscrowd"], -entry["area"])):
        mask = coco.decode(encode(entry["segmentation"], labels.shape))
        labels[mask > 0] = UNKNOWN if entry["iscrowd"] else entry["category_id"]
    return labels


def count_values(values: np.ndarray) -> Counter[int]:
    """Return the number of pixels of each value."""
    return Counter(dict(zip(*(each.tolist() for each in np.unique(values, return_counts=True)), strict=True)))
