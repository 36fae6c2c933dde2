"""Small folders of annotated images, in the formats that users have."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from mmlisa.data.dataset import Dataset
from mmlisa.data.preparation import read

CLASSES = ["cat", "dog", "newt"]
SIZE = (64, 48)  # width and height


@contextmanager
def edited(file: Path) -> Iterator[dict]:
    """The content of a JSON file, to be changed."""
    content = json.loads(file.read_text())
    yield content
    file.write_text(json.dumps(content))


def refuses(match: str, *args: object, by: Callable = read) -> None:
    """Assert that a folder is refused with a reason."""
    with pytest.raises(ValueError, match=match):
        by(*args)


def noted(pattern: str, dataset: Dataset) -> bool:
    """Whether a note of a data set matches."""
    return any(re.search(pattern, note) for note in dataset.notes)


def write_images(folder: Path, number: int = 12, seed: int = 0) -> list[str]:
    """Images of noise, no two alike; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = [f"{index:03d}.jpg" for index in range(number)]
    for name in names:
        coarse = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        cv2.imwrite(str(folder / name), cv2.resize(coarse, SIZE))
    return names


def boxes(index: int) -> list[tuple[int, list[float]]]:
    """The objects of an image: class, and left, top, width and height."""
    return [(index % 3, [4.0 + index, 5.0, 20.0, 17.0]), ((index + 1) % 3, [30.0, 10.0 + index, 12.0, 9.0])]


def write_coco(root: Path, split: str = "", number: int = 12) -> Path:
    """Images and ``annotations.json`` beside them, or both under ``<split>/`` as Roboflow has them."""
    folder = root / split
    images, annotations = [], []
    for index, name in enumerate(write_images(folder, number, seed=sum(map(ord, split))), 1):
        images.append({"id": index, "file_name": name, "width": SIZE[0], "height": SIZE[1]})
        for label, box in boxes(index - 1):
            entry = {"id": len(annotations) + 1, "image_id": index, "category_id": label + 1, "bbox": box}
            annotations.append({**entry, "area": box[2] * box[3], "iscrowd": 0})
    categories = [{"id": index, "name": name} for index, name in enumerate(CLASSES, 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    file = folder / ("_annotations.coco.json" if split else "annotations.json")
    file.write_text(json.dumps(content))
    return file


def write_yolo(root: Path, number: int = 12) -> Path:
    """``data.yaml``, ``images/`` and ``labels/``, without splits."""
    (root / "labels").mkdir(parents=True)
    for index, name in enumerate(write_images(root / "images", number)):
        lines = []
        for label, (x, y, w, h) in boxes(index):
            values = ((x + w / 2) / SIZE[0], (y + h / 2) / SIZE[1], w / SIZE[0], h / SIZE[1])
            lines.append(" ".join(map(str, (label, *values))))
        (root / "labels" / name).with_suffix(".txt").write_text("\n".join(lines))
    file = root / "data.yaml"
    file.write_text(yaml.safe_dump({"names": CLASSES}))
    return file


def write_labelme(root: Path, number: int = 12) -> Path:
    """A JSON file beside each image, with triangles."""
    for index, name in enumerate(write_images(root, number)):
        shapes = [
            {"label": CLASSES[label], "points": [[x, y], [x + w, y], [x, y + h]], "shape_type": "polygon"}
            for label, (x, y, w, h) in boxes(index)
        ]
        content = {"imagePath": name, "imageWidth": SIZE[0], "imageHeight": SIZE[1], "shapes": shapes}
        (root / name).with_suffix(".json").write_text(json.dumps(content))
    return root / "000.json"


def write_maps(root: Path, number: int = 12) -> Path:
    """``images/`` and ``masks/`` with classes 0 to 2, and 255."""
    (root / "masks").mkdir(parents=True)
    for index, name in enumerate(write_images(root / "images", number)):
        values = np.zeros(SIZE[::-1], np.uint8)
        for label, (x, y, w, h) in boxes(index):
            values[int(y) : int(y + h), int(x) : int(x + w)] = label
        values[:2] = 255
        cv2.imwrite(str((root / "masks" / name).with_suffix(".png")), values)
    return root / "masks" / "000.png"


def write_classes(root: Path, number: int = 6) -> Path:
    """A folder of images per class."""
    for seed, name in enumerate(CLASSES):
        for image in write_images(root / name, number, seed=seed):
            (root / name / image).rename(root / name / f"{name}_{image}")
    return root


def demo_as_yolo(demo: Path, root: Path) -> Path:
    """Write the boxes of the demo data as Ultralytics does; a crowd is an object."""
    dataset = read(demo)
    shutil.copytree(demo, root / "images", ignore=shutil.ignore_patterns("ade", "cls", "annotations"))
    for sample in dataset.samples:
        boxes = [(entry["category_id"], np.array(entry["bbox"]) / (2 * sample.size)) for entry in sample.objects]
        lines = [" ".join(map(str, (label, x + w / 2, y + h / 2, w, h))) for label, (x, y, w, h) in boxes]
        file = (root / "labels" / sample.path).with_suffix(".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))
    content = dict(names=dataset.classes, train="images/train", val="images/val")
    (root / "data.yaml").write_text(yaml.safe_dump(content))
    return root


def demo_as_voc(demo: Path, root: Path) -> Path:
    """Write the boxes of the demo data as Pascal VOC; crowds are difficult objects."""
    dataset = read(demo)
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    for sample in dataset.samples:
        stem, objects = sample.path.removesuffix(".jpg").replace("/", "_"), ""
        shutil.copy(demo / sample.path, root / "JPEGImages" / f"{stem}.jpg")
        for entry in sample.objects:
            x, y, w, h = entry["bbox"]
            corners = dict(xmin=x + 1, ymin=y + 1, xmax=x + w, ymax=y + h)  # pixels are counted from 1
            box = "".join(f"<{side}>{value}</{side}>" for side, value in corners.items())
            name = f"<name>{dataset.classes[entry['category_id']]}</name><difficult>{entry['iscrowd']}</difficult>"
            objects += f"<object>{name}<bndbox>{box}</bndbox></object>"
        text = f"<annotation><filename>{stem}.jpg</filename>{objects}</annotation>"
        (root / "Annotations" / f"{stem}.xml").write_text(text)
        with (root / "ImageSets" / "Main" / f"{sample.split}.txt").open("a") as file:
            file.write(f"{stem}\n")
    return root
