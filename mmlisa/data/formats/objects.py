"""Objects of all formats in COCO's form: their checks, and the data set that they make.

Polygons stay as they are: supervision's readers draw each into a mask, which takes ``objects x height x width`` bytes per image
and rounds the outline.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import cv2
import numpy as np
from pycocotools import mask as coco

from mmlisa.datasets.annotations import find_misplaced, find_reason, is_polygon
from mmlisa.errors import UserError

from ..dataset import UNKNOWN, Dataset, Sample, note_problems
from ..folder import Folder, split_of

IGNORED, BACKGROUND = "__ignore__", "_background_"  # LabelMe's labels of a region that does not count, and of no object


class Objects:
    """The images and objects that a reader finds, and what it cannot use.

    Args:
        folder: the files.
        kind: name of the format.
        splits: split of each image; those of the folder's lists if None. An image that is missing in them is in none.

    Attributes:
        lost, bad: images and objects that cannot be used, each with the reason.
        entries: each object with its image and the place where it is written. ``category_id`` is the class's name.
    """

    def __init__(self, folder: Folder, kind: str, splits: dict[str, str] | None = None) -> None:
        self.folder, self.kind = folder, kind
        self.splits = folder.listed_splits() if splits is None else splits
        self.samples: dict[tuple[str, str], Sample] = {}
        self.entries: list[tuple[Sample, str, dict[str, Any]]] = []
        self.lost: list[tuple[object, str]] = []
        self.bad: list[tuple[object, str]] = []

    def add_image(
        self, file: str, path: str | None, size: Sequence[Any] = (), split: str = "", stated: Any = ""
    ) -> Sample | None:
        """Add an image that ``file`` annotates; None if it is missing or cannot be read.

        Args:
            file: the annotation file.
            path: the image in the folder; None if it is missing.
            size: width and height as the file states them; both may be None.
            split: what the file says; "" for what the lists or the image's folder say.
            stated: what the file calls the image.

        Raises:
            UserError: the image is annotated twice.
        """
        if path is None:
            reason = f"its image {str(stated)!r} is missing; put it beside this file or into images/"
            self.lost.append((self.folder.root / file, reason))
            return None
        try:
            size = self.folder.look(path, tuple(int(float(side)) for side in size) if all(size) else None).size
        except ValueError as error:
            self.lost.append((self.folder.root / path, str(error)))
            return None
        sample = Sample(path, split or self.splits.get(path, "" if self.splits else split_of(path)), size)
        if self.samples.setdefault((sample.split, path), sample) is not sample:
            raise UserError(f"{self.folder.root / file}: {path} is annotated twice; keep one of both entries")
        return sample

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

    def finish_labels(self, classes: list[str]) -> Dataset:
        """Return the data set of the images with a label."""
        samples = [sample for sample in self.samples.values() if sample.label >= 0]
        notes = note_problems(self.lost, len(samples) + len(self.lost), "images")
        return Dataset(self.folder.root, "classification", classes, samples, notes)

    def finish(self, classes: Iterable[str]) -> Dataset:
        """Return the data set of what a training can use.

        Raises:
            UserError: too much cannot be used, or nothing is left.
        """
        root, usable, boxes = self.folder.root, [], 0
        notes = note_problems(self.lost, len(self.samples) + len(self.lost), "images")
        has_masks = 2 * sum(bool(entry["segmentation"]) for _, _, entry in self.entries) > len(self.entries)
        for sample, where, entry in self.entries:
            if reason := find_reason(entry, sample.size, has_masks and bool(entry["segmentation"])):
                self.bad.append((where, reason))
            else:
                usable.append((sample, entry))
        notes += note_problems(self.bad, len(usable) + len(self.bad), "objects")
        if doubts := find_misplaced([entry for _, entry in usable], [sample.size for sample, _ in usable]):
            raise UserError(f"{root}: {doubts[0]}")
        names = [name for name in dict.fromkeys(map(str.strip, classes)) if name not in (IGNORED, BACKGROUND)]
        for sample, entry in usable:
            entry["category_id"] = 0 if entry["category_id"] == IGNORED else names.index(entry["category_id"])
            if not has_masks:
                del entry["segmentation"]
            elif not entry["segmentation"]:
                (x, y, w, h), boxes = entry["bbox"], boxes + 1
                entry["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            sample.objects.append(entry)
        crowds = sum(entry["iscrowd"] for _, entry in usable)
        if crowds == len(usable):
            hint = f"all {crowds} are crowds, difficult or {IGNORED}" if crowds else f"{self.kind} lists none"
            raise UserError(f"{root}: no image has an object that can be learnt; {hint}")
        if crowds:
            share = f"{crowds} of {len(usable)} objects"
            notes.append(f"ignored in training and test: {share}, crowds, difficult or {IGNORED}")
        if boxes:
            notes.append(f"{boxes} of {len(usable)} objects have no outline; that of their box is taken")
        used = {path for _, path in self.samples}
        if unused := [path for path in self.folder.images if path not in used]:
            notes.append(f"{len(unused)} images are in no annotation file and not used, the first {root / unused[0]}")
        return Dataset(root, "detection", names, [*self.samples.values()], notes, has_masks)


def draw_maps(dataset: Dataset) -> None:
    """Turn a data set of outlines into one of class maps, which are drawn when they are written.

    Raises:
        UserError: the objects are boxes.
    """
    if not dataset.has_masks:
        raise UserError(f"{dataset.root}: --task segmentation needs outlines, but the objects are boxes")
    dataset.task, dataset.classes = "segmentation", ["background", *dataset.classes]
    for sample in dataset.samples:
        for entry in sample.objects:
            entry["category_id"] += 1
        values, counts = np.unique(draw_map(sample), return_counts=True)
        sample.counts = Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        del sample.counts[UNKNOWN]


def draw_map(sample: Sample) -> np.ndarray:
    """Return the outlines of an image as labels ``[H, W]``, uint8: smaller objects over larger ones, crowds as unknown."""
    size = sample.size[::-1]
    labels = np.zeros(size, np.uint8)
    for entry in sorted(sample.objects, key=lambda entry: (not entry["iscrowd"], -entry["area"])):
        mask = entry["segmentation"]
        if isinstance(mask, list):
            mask = coco.merge(coco.frPyObjects(mask, *size))
        elif isinstance(mask["counts"], list):
            mask = coco.frPyObjects(mask, *size)
        labels[coco.decode(mask) > 0] = UNKNOWN if entry["iscrowd"] else entry["category_id"]
    return labels
