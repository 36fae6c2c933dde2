"""The data set that a reader makes of a folder, and what it left out."""

import math
import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmlisa.errors import UserError

SPLITS = ("train", "val", "test")
UNKNOWN = 255  # label of pixels that are not annotated
_MOST_LEFT_OUT = 0.1  # share of images or annotations; more is an error of the whole folder
_KINDS, _CLASSES = 5, 30  # most that are listed
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
