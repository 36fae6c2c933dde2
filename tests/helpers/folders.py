"""Small folders of annotated images, in the formats that users have."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import yaml

CLASSES = ["cat", "dog", "newt"]
SIZE = (64, 48)  # width and height
TURNED_XMP = (  # an image that is to be turned by 90 degrees
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
    b'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>'
)


def write_images(folder: Path, number: int = 12, size: tuple[int, int] = SIZE, seed: int = 0) -> list[str]:
    """Images of noise, no two alike; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = [f"{index:03d}.jpg" for index in range(number)]
    for name in names:
        coarse = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        cv2.imwrite(str(folder / name), cv2.resize(coarse, size))
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


def write_voc(root: Path, number: int = 12) -> Path:
    """``Annotations/*.xml`` and ``JPEGImages/``; pixels are counted from 1."""
    (root / "Annotations").mkdir(parents=True)
    for index, name in enumerate(write_images(root / "JPEGImages", number)):
        objects = "".join(
            f"<object><name>{CLASSES[label]}</name><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w}</xmax>"
            f"<ymax>{y + h}</ymax></bndbox></object>"
            for label, (x, y, w, h) in boxes(index)
        )
        text = f"<annotation><filename>{name}</filename>{objects}</annotation>"
        (root / "Annotations" / name).with_suffix(".xml").write_text(text)
    return root / "Annotations" / "000.xml"


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
        write_images(root / name, number, seed=seed)
    return root


def demo_objects(demo: Path, split: str) -> Iterator[tuple[dict, list[dict]]]:
    """Each image of a split of the demo data, and its objects: a label beside COCO's entries, corners, and the outline.

    The outline is None for a crowd and for an object in several parts, which YOLO and Pascal VOC cannot express.
    """
    content = json.loads((demo / "annotations" / f"instances_{split}.json").read_text())
    names = {category["id"]: category["name"] for category in content["categories"]}
    for image in content["images"]:
        objects = [entry for entry in content["annotations"] if entry["image_id"] == image["id"]]
        for entry in objects:
            x, y, w, h = entry["bbox"]
            single = not entry["iscrowd"] and len(entry["segmentation"]) == 1
            outline = np.reshape(entry["segmentation"], (-1, 2)) if single else None
            entry |= {
                "name": names[entry["category_id"]],
                "corners": np.array([x, y, x + w, y + h]),
                "outline": outline,
            }
        yield image, objects


def demo_as_yolo(demo: Path, root: Path, names: list[str]) -> None:
    """The demo data as supervision writes their boxes and outlines for YOLO, which has no crowds."""
    from supervision.dataset.formats.yolo import object_to_yolo

    for split in ("train", "val"):
        (root / "images").mkdir(parents=True, exist_ok=True)
        (root / "images" / split).symlink_to(demo / split)
        (root / "labels" / split).mkdir(parents=True)
        for image, objects in demo_objects(demo, split):
            shape = image["height"], image["width"]
            lines = [
                object_to_yolo(entry["corners"], names.index(entry["name"]), shape, entry["outline"])
                for entry in objects
                if not entry["iscrowd"]
            ]
            (root / "labels" / split / image["file_name"]).with_suffix(".txt").write_text("\n".join(lines))
    content = {"train": "images/train", "val": "images/val", "names": names}
    (root / "data.yaml").write_text(yaml.safe_dump(content))


def demo_as_voc(demo: Path, root: Path) -> None:
    """The demo data as supervision writes their boxes and outlines for Pascal VOC; crowds are difficult objects."""
    from supervision.dataset.formats.pascal_voc import object_to_pascal_voc

    for split in ("train", "val"):
        (root / split).mkdir(parents=True)
        (root / split / "images").symlink_to(demo / split)
        for image, objects in demo_objects(demo, split):
            tree = ElementTree.Element("annotation")
            ElementTree.SubElement(tree, "filename").text = image["file_name"]
            for entry in objects:
                child = object_to_pascal_voc(entry["corners"], entry["name"], entry["outline"])
                ElementTree.SubElement(child, "difficult").text = str(entry["iscrowd"])
                tree.append(child)
            ElementTree.ElementTree(tree).write((root / split / image["file_name"]).with_suffix(".xml"))
