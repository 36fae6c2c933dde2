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
    """An image and its annotations.

    Attributes:
        path: path of the image, relative to the folder, with forward slashes; a LabelMe file's if that contains the image.
        split: one of :data:`SPLITS`; empty where the folder has no splits.
        size: width and height in pixels, as the training reads them.
        objects: COCO annotations without ids; ``category_id`` is the index of the class.
        seg_map: segmentation: the class map, as ``path``; empty if it is to be drawn from the objects.
        counts: number of pixels of each label in the class map.
        label: classification: the index of the class.
        digest: hash of the image file.
    """

    path: str
    split: str = ""
    size: tuple[int, int] = (0, 0)
    objects: list[dict[str, Any]] = field(default_factory=list)
    seg_map: str = ""
    counts: Counter[int] = field(default_factory=Counter)
    label: int = -1
    digest: bytes = b""

    def count(self) -> Counter[int]:
        """Return the number of objects that count, or of pixels, of each label; of a classification, the label once."""
        labels = [self.label] if self.label >= 0 else [o["category_id"] for o in self.objects if not o["iscrowd"]]
        return self.counts or Counter(labels)


@dataclass
class Dataset:
    """The content of a folder.

    Attributes:
        root: the folder; nothing in it is ever written.
        task: ``'detection'``, ``'segmentation'`` or ``'classification'``.
        classes: names; labels are indices into them.
        samples: the images.
        notes: lines that the user should know.
        has_masks: whether the objects have outlines.
        values: label of each value of the class maps; None if a training reads the maps as they are.
        facts: first lines of the summary: the format, where the splits are stated, grey levels that are not 8 bits.
    """

    root: Path
    task: str
    classes: list[str]
    samples: list[Sample]
    notes: list[str] = field(default_factory=list)
    has_masks: bool = False
    values: dict[int, int] | None = None
    facts: list[str] = field(default_factory=list)

    def split(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.split == name]

    def count(self, name: str) -> Counter[int]:
        """Return the number of objects, pixels or images of each label in a split."""
        return sum((sample.count() for sample in self.split(name)), Counter())

    def table(self) -> list[list[str]]:
        """Return the number of each class in each split, the head first: objects, also by size, images, or shares of pixels."""
        unit = {"detection": "objects", "segmentation": "pixels", "classification": "images"}[self.task]
        head, rows = ["class"], [[name] for name in self.classes]
        for split in filter(self.split, SPLITS):
            sizes = _SIZES if unit == "objects" else {}
            head += [f"{unit} in {split}", *sizes]
            counts, by_size = self.count(split), Counter()
            for entry in (o for s in self.split(split) for o in s.objects if not o["iscrowd"]):
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
        sides = sorted(math.sqrt(math.prod(o["bbox"][2:])) for s in self.samples for o in s.objects if not o["iscrowd"])
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
    """Return a note on each kind of problem, with the first example.

    Args:
        problems: what has the problem, and the problem; its numbers and quotations do not make another kind.
        total, unit: number of all, good and bad, and what is counted.

    Raises:
        UserError: more than a tenth of ``total`` has a problem; names the first of the most frequent kind.
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
