"""Tree crowns in aerial images: 951 boxes in the four annotated images that the package deepforest ships.

Weinstein et al., "DeepForest: A Python package for RGB deep learning tree crown delineation". The package, under the MIT
licence, is not part of mmlisa: ``pip install --no-deps deepforest`` installs it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.etree import ElementTree

import numpy as np

from mmlisa.datasets.coco import CocoDataset
from mmlisa.datasets.demo import make_once
from mmlisa.registry import DATASETS

from .packages import data_folder

CLASSES = ("tree",)  # one image distinguishes dead from living trees; both are trees here
CROP, STRIDE = 256, 192  # of the crops that training and test images are, in pixels
MIN_VISIBLE = 0.4  # smallest visible share of a crown that is an object of a crop


class Photograph(NamedTuple):
    """An aerial image [H, W, 3] (RGB, uint8) and the boxes in it [n, 4] (x1, y1, x2, y2)."""

    name: str
    image: np.ndarray
    boxes: np.ndarray


def read_photographs(folder: str | Path) -> list[Photograph]:
    """Read the annotated images of a folder in Pascal VOC's format, the largest first.

    Raises:
        FileNotFoundError: the folder has no annotated image.
    """
    from PIL import Image

    found = []
    for file in sorted(Path(folder).glob("*.xml")):
        root = ElementTree.parse(file).getroot()
        boxes = [[float(box.findtext(key)) for key in ("xmin", "ymin", "xmax", "ymax")] for box in root.iter("bndbox")]
        with Image.open(file.with_name(root.findtext("filename"))) as image:
            found.append(Photograph(file.stem, np.asarray(image.convert("RGB")), np.array(boxes)))
    if not found:
        raise FileNotFoundError(f"{folder} holds no *.xml of an annotated image")
    return sorted(found, key=lambda photograph: -photograph.image.size)


def crops(photograph: Photograph, size: int = CROP, stride: int = STRIDE) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield overlapping square crops ``[size, size, 3]`` with the visible parts of the boxes, ``[n, 4]``."""
    image, boxes = photograph.image, photograph.boxes
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    for top in _starts(image.shape[0], size, stride):
        for left in _starts(image.shape[1], size, stride):
            inside = np.clip(boxes - np.array([left, top, left, top]), 0, size)
            sides = inside[:, 2:] - inside[:, :2]
            visible = (sides.min(1) >= 4) & (sides.prod(1) >= MIN_VISIBLE * area)
            yield image[top : top + size, left : left + size], inside[visible]


def _starts(length: int, size: int, stride: int) -> list[int]:
    """Return the starts of crops that cover a side; the last crop ends at its end."""
    return [*range(0, length - size, stride), max(length - size, 0)]


def make_tree_crowns(root: str | Path, source: str | Path | None = None) -> Path:
    """Write crops in COCO's layout under ``root``: the largest photograph for training, the others for tests.

    Args:
        root: folder to make (see :func:`mmlisa.datasets.demo.make_once`).
        source: folder of the photographs; None for that of the installed package.

    Raises:
        ImportError: no ``source``, and deepforest is not installed.
        FileNotFoundError: ``source`` has no photograph.
    """

    def build(folder: Path) -> None:
        largest, *others = read_photographs(source or data_folder("deepforest", "deepforest"))
        _write(folder, "train", [largest])
        _write(folder, "val", others)

    return make_once(root, build)


def _write(root: Path, split: str, photographs: list[Photograph]) -> None:
    from PIL import Image

    images, annotations = [], []
    (root / split).mkdir(parents=True)
    for photograph in photographs:
        for image, boxes in crops(photograph):
            name = f"{photograph.name}_{len(images):04d}.png"
            Image.fromarray(image).save(root / split / name)
            images.append(dict(id=len(images) + 1, file_name=name, height=image.shape[0], width=image.shape[1]))
            for x1, y1, x2, y2 in boxes.tolist():
                box = dict(bbox=[x1, y1, x2 - x1, y2 - y1], area=(x2 - x1) * (y2 - y1), iscrowd=0, category_id=1)
                annotations.append(dict(box, id=len(annotations) + 1, image_id=len(images)))
    (root / "annotations").mkdir(exist_ok=True)
    content = dict(images=images, annotations=annotations, categories=[dict(id=1, name=CLASSES[0])])
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


@DATASETS.register_module()
class TreeCrownDataset(CocoDataset):
    """Crops of 256 pixels with boxes, written under ``data_root`` on first use. All else is as in :class:`CocoDataset`."""

    METAINFO: ClassVar[dict[str, Any]] = {"classes": CLASSES, "palette": [(51, 160, 44)]}

    def load_data_list(self) -> list[dict]:
        make_tree_crowns(self.data_root)
        return super().load_data_list()
