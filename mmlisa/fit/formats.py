"""Readers of the usual annotation formats, and which of them a folder needs.

The readers keep polygons as they are and name the file of what is wrong. supervision's readers draw each polygon into a mask of
the image's size, which takes ``objects x height x width`` bytes per image and rounds the outline; the tests read files that
supervision has written.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml
from PIL import Image

from .folder import Dataset, Folder, Problems, Sample, displayed_size, split_of

_EXPECTED = (
    "COCO (*.json), YOLO (data.yaml and labels/*.txt), Pascal VOC (*.xml), LabelMe (*.json), class maps (masks/*.png) "
    "or one folder of images per class"
)
_YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_NAME_FILES = ("classes.txt", "labels.txt", "class_names.txt", "obj.names")
# Words that tell a folder of images or of class maps, or a file of a pair, in the usual layouts.
_IMAGE_WORDS = ("images", "image", "img", "imgs", "jpegimages", "leftimg8bit", "rgb")
_MAP_WORDS = (
    "masks",
    "mask",
    "labels",
    "label",
    "labelids",
    "labeltrainids",
    "annotations",
    "annotation",
    "segmentationclass",
)
_MAP_WORDS += ("gt", "gtfine", "seg", "segmentation", "segmentations", "maps")


def read(root: str | Path, task: str = "") -> Dataset:
    """Recognises the format of a folder and reads it.

    Args:
        root: the folder.
        task: one of :data:`mmlisa.fit.folder.TASKS`. Where empty, the first that is found of boxes and outlines, class maps and
            class folders.

    Raises:
        ValueError: the folder holds no annotations or several formats, or more than a tenth of the entries cannot be used;
            names the file and the remedy.
        FileNotFoundError, NotADirectoryError: the folder does not exist.
    """
    folder = Folder(root)
    if task in ("", "detection") and (found := _annotation_files(folder)):
        if len(found) > 1:
            listed = "; ".join(f"{name}: {next(iter(files))}" for name, files in found.items())
            raise ValueError(
                f"{root} holds annotations in several formats ({listed}); move each format, with its images, into a folder of "
                "its own and name one of them"
            )
        ((name, files),) = found.items()
        dataset = _READERS[name](folder, files)
        _settle_outlines(dataset)
        if name != "COCO":
            _check_objects(dataset)
    elif task in ("", "segmentation") and (pairs := _pair_maps(folder)):
        dataset = read_class_maps(folder, pairs)
    elif task in ("", "classification") and (labels := _class_folders(folder)):
        dataset = read_class_folders(folder, labels)
    else:
        raise ValueError(
            f"{root} holds {len(folder.images)} images but no annotations{f' for {task}' * bool(task)}: add {_EXPECTED}"
        )
    unassigned = dataset.split("")
    if 0 < len(unassigned) < len(dataset.samples):
        dataset.samples = [sample for sample in dataset.samples if sample.split]
        dataset.notes.append(
            f"{folder.root / unassigned[0].path} and {len(unassigned) - 1} other images lie outside of the folders train, val "
            "and test and are left out; move them into one of these to use them"
        )
    return dataset


def _annotation_files(folder: Folder) -> dict[str, dict[str, Any]]:
    """The parsed annotation files of each format of objects that the folder holds, by name."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _READERS}
    for name in folder.files(".json"):
        content = _parse(folder.root / name, "JSON", json.loads)
        if isinstance(content, Mapping) and isinstance(content.get("shapes"), list):
            found["LabelMe"][name] = content
        elif isinstance(content, Mapping) and all(key in content for key in ("images", "annotations", "categories")):
            found["COCO"][name] = content
    for name in folder.files(".xml"):
        content = _parse(folder.root / name, "XML", ElementTree.fromstring)
        if content.tag == "annotation":
            found["Pascal VOC"][name] = content
    for name in folder.files(".yaml", ".yml"):
        content = _parse(folder.root / name, "YAML", yaml.safe_load)
        if (isinstance(content, Mapping) and "names" in content) or PurePosixPath(name).name in _YAML_NAMES:
            found["YOLO"][name] = content
    if not found["YOLO"] and (labels := _label_files(folder)):
        found["YOLO"][labels[0]] = None
    return {name: files for name, files in found.items() if files}


def _parse(path: Path, kind: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8-sig"))
    except (ValueError, ElementTree.ParseError, yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not valid {kind} ({reason}); export it again, or correct it") from error


# --- objects: boxes and outlines ---------------------------------------------------------------------------------------------


def _object(
    category: int, box: tuple[float, ...], polygons: list[list[float]] | None = None, crowd: bool = False
) -> dict:
    """A COCO annotation; ``box`` is left, top, right and bottom in pixels."""
    left, top, right, bottom = box
    entry = {"category_id": category, "bbox": [left, top, right - left, bottom - top], "iscrowd": int(crowd)}
    area = sum(map(_polygon_area, polygons)) if polygons else (right - left) * (bottom - top)
    return {**entry, "area": area, **({"segmentation": polygons} if polygons else {})}


def _outlined(category: int, polygons: list[list[float]], size: tuple[int, int]) -> dict:
    """A COCO annotation with the box around its polygons, clipped to the image."""
    x = np.clip(np.concatenate([polygon[0::2] for polygon in polygons]), 0, size[0]).astype(float)
    y = np.clip(np.concatenate([polygon[1::2] for polygon in polygons]), 0, size[1]).astype(float)
    return _object(category, tuple(map(float, (x.min(), y.min(), x.max(), y.max()))), polygons)


def _polygon_area(polygon: list[float]) -> float:
    x, y = np.array(polygon[0::2]), np.array(polygon[1::2])
    return abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2


def _settle_outlines(dataset: Dataset) -> None:
    """Gives all objects outlines where half of them have some, and none otherwise."""
    objects = [entry for sample in dataset.samples for entry in sample.objects]
    bare = [entry for entry in objects if not entry.get("segmentation")]
    dataset.has_masks = 2 * len(bare) < len(objects)
    if not dataset.has_masks:
        for entry in objects:
            entry.pop("segmentation", None)
    elif bare:
        for entry in bare:
            x, y, w, h = entry["bbox"]
            entry["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        dataset.notes.append(f"{len(bare)} of {len(objects)} objects have no outline; their box is taken for it")


def _check_objects(dataset: Dataset) -> None:
    """Leaves out objects that a training cannot use.

    Raises:
        ValueError: these are more than a tenth, or there are no objects.
    """
    from mmlisa.datasets.annotations import find_problems  # imports mmdet: after what is quickly found

    problems, total = Problems(), 0
    for split in {sample.split for sample in dataset.samples}:
        owners = [(sample, entry) for sample in dataset.split(split) for entry in sample.objects]
        total += len(owners)
        for problem in find_problems(dataset.to_coco(split), dataset.has_masks):
            if problem.part == "annotations":
                sample, entry = owners[problem.index]
                sample.objects = [other for other in sample.objects if other is not entry]
                problems.append(f"{dataset.root / sample.path}: {problem.reason}; correct its annotation")
    problems.check(total, "objects")
    dataset.notes += problems[:5]
    if not total:
        raise ValueError(
            f"{dataset.root}: no image has an annotation ({dataset.format}); add labels, or name another folder"
        )


def read_coco(folder: Folder, files: Mapping[str, Any]) -> Dataset:
    """COCO's layout and Roboflow's: a file per split, or one for all images."""
    from mmlisa.datasets.annotations import find_problems, without

    instances = {name: content for name, content in files.items() if PurePosixPath(name).name.startswith("instances")}
    contents = instances or files
    used = {entry.get("category_id") for content in contents.values() for entry in content["annotations"]}
    classes: list[str] = []
    samples: dict[str, Sample] = {}
    problems, absent, notes, num_images, num_objects = Problems(), Problems(), [], 0, 0
    for name, content in contents.items():
        path, split = folder.root / name, split_of(name, words=True)
        base = _image_folder(folder, name, split, content["images"])
        missing = set()
        for image in content["images"]:
            stated = str(image.get("file_name"))
            inside = f"{base}/{stated}".removeprefix("./")
            image["file_name"] = inside if inside in folder.image_set else folder.find(stated, name) or inside
            if image["file_name"] not in folder.image_set:
                missing.add(image.get("id"))
                absent.append(
                    f"{path}: its image {stated!r} is not in {folder.root}; copy it there, or correct file_name"
                )
        num_images += len(content["images"])
        content["images"] = [image for image in content["images"] if image.get("id") not in missing]
        content["annotations"] = [entry for entry in content["annotations"] if entry.get("image_id") not in missing]
        for entry in content["annotations"]:
            box = entry.get("bbox")
            if not entry.get("area") and isinstance(box, list) and len(box) == 4:
                entry["area"] = box[2] * box[3]
        num_objects += len(content["annotations"])
        outlined = sum(bool(entry.get("segmentation")) for entry in content["annotations"])
        try:
            # An object without an outline is dealt with later; a broken outline is a problem where most have one.
            found = find_problems(content, with_mask=2 * outlined > len(content["annotations"]))
        except ValueError as error:
            raise ValueError(f"{path} is not a COCO annotation file: {error}; export it again") from error
        found = [problem for problem in found if problem.reason != "it has no segmentation"]
        problems += [f"{path}: {problem}; correct it, or export the file again" for problem in found]
        usable = without(content, found)
        # Roboflow lists the name of the whole project as a category that no object has.
        parents = {category.get("supercategory") for category in usable["categories"]}
        names = {
            category["id"]: category["name"]
            for category in sorted(usable["categories"], key=lambda category: category["id"])
            if category["id"] in used or category["name"] not in parents
        }
        classes += [each for each in names.values() if each not in classes]
        by_id = {}
        for image in usable["images"]:
            by_id[image["id"]] = Sample(image["file_name"], split, (int(image["width"]), int(image["height"])))
            if image["file_name"] in samples and samples[image["file_name"]].split == split:
                raise ValueError(
                    f"{path}: another file annotates {image['file_name']}, too; move one of both elsewhere"
                )
        for entry in usable["annotations"]:
            kept = {key: entry[key] for key in ("bbox", "area", "segmentation") if entry.get(key)}
            category = classes.index(names[entry["category_id"]])
            by_id[entry["image_id"]].objects.append(
                {**kept, "category_id": category, "iscrowd": entry.get("iscrowd", 0)}
            )
        samples |= {f"{split}:{sample.path}": sample for sample in by_id.values()}
    if not num_objects and not absent:
        raise ValueError(f"{folder.root / next(iter(contents))} has no annotations; export the labels, too")
    absent.check(num_images, "images")
    problems.check(num_objects, "annotations")
    return Dataset(folder.root, "COCO", "detection", classes, list(samples.values()), notes + absent[:5] + problems[:5])


def _image_folder(folder: Folder, name: str, split: str, images: list[Any]) -> str:
    """The folder under which most of the file names of a COCO file are found."""
    stated = [
        str(image.get("file_name")) for image in images[:: max(1, len(images) // 100)] if isinstance(image, Mapping)
    ]
    parents = {parent.as_posix() for image in folder.images for parent in PurePosixPath(image).parents}
    own = PurePosixPath(name).parent.as_posix()

    def rank(parent: str) -> tuple[int, bool, bool, str]:
        found = sum(f"{parent}/{each}".removeprefix("./") in folder.image_set for each in stated)
        return found, split_of(f"{parent}/x") == split, parent == own, parent

    return max(parents, key=rank)


def read_yolo(folder: Folder, files: Mapping[str, Any]) -> Dataset:
    """Ultralytics' layout and Roboflow's: ``data.yaml``, ``images/`` and ``labels/``; boxes, or polygons, in fractions."""
    (name, content), *more = files.items()
    if more:
        raise ValueError(f"{folder.root} holds {name} and {more[0][0]}, both of YOLO; name the folder of one of them")
    source = folder.root / name
    classes = _class_names(folder, source, content)
    images = _yolo_images(folder, name, content if isinstance(content, Mapping) else {})
    labels = set(folder.files(".txt"))
    samples, problems, total = [], Problems(), 0
    for image, split in images.items():
        sample = Sample(image, split)
        samples.append(sample)
        label = next((label for label in _label_names(image) if label in labels), None)
        if label is None:  # an image without objects
            continue
        labels.discard(label)
        sample.size = _size(folder.root / image)
        for number, line in enumerate((folder.root / label).read_text(encoding="utf-8-sig").splitlines(), 1):
            if line.strip():
                total += 1
                try:
                    sample.objects.append(_yolo_object(line.split(), len(classes), sample.size))
                except ValueError as error:
                    problems.append(f"{folder.root / label}, line {number}: {error}")
        sample.size = None if sample.size == (0, 0) else sample.size
    orphans = [label for label in labels if "labels" in PurePosixPath(label).parts]
    lost = Problems(
        f"{folder.root / label}: no image belongs to these labels; copy the image there" for label in sorted(orphans)
    )
    lost.check(len(samples), "labels")
    problems.check(total, "objects")
    return Dataset(folder.root, "YOLO", "detection", classes, samples, lost[:5] + problems[:5])


def _label_names(image: str) -> list[str]:
    """Where YOLO keeps the labels of an image: under ``labels`` instead of ``images``, or beside it."""
    path = PurePosixPath(image).with_suffix(".txt")
    places = [index for index, part in enumerate(path.parts) if part == "images"]
    moved = [PurePosixPath(*path.parts[:i], "labels", *path.parts[i + 1 :]).as_posix() for i in reversed(places)]
    return [*moved, f"labels/{path.name}", path.as_posix()]


def _label_files(folder: Folder) -> list[str]:
    """Text files that have the form and the place of YOLO's labels."""
    texts = set(folder.files(".txt"))
    labels = [next((label for label in _label_names(image) if label in texts), None) for image in folder.images]
    number = r"[-+]?[\d.]+(e[-+]?\d+)?"
    line = re.compile(rf"\s*\d+(\s+{number}){{4,}}\s*(\n|$)")
    return [label for label in labels if label and line.match((folder.root / label).read_text(errors="replace"))]


def _class_names(folder: Folder, source: Path, content: Any) -> list[str]:
    if content is None:
        file = next((name for name in folder.files(".txt", ".names") if PurePosixPath(name).name in _NAME_FILES), None)
        if file is None:
            raise ValueError(
                f"{source} has YOLO's form, but no file names its classes; add data.yaml with names: [first, second, …]"
            )
        return [
            line.strip() for line in (folder.root / file).read_text(encoding="utf-8-sig").splitlines() if line.strip()
        ]
    names = content.get("names") if isinstance(content, Mapping) else None
    if isinstance(names, Mapping) and all(str(key).isdigit() for key in names):
        numbered = {int(key): str(value) for key, value in names.items()}
        names = [numbered.get(index, f"class {index}") for index in range(max(numbered, default=-1) + 1)]
    if not isinstance(names, list) or not names:
        raise ValueError(f"{source} has no list of class names; add names: [first, second, …]")
    return [str(each) for each in names]


def _yolo_images(folder: Folder, name: str, content: Mapping[str, Any]) -> dict[str, str]:
    """The split of each image that ``data.yaml`` names, or, where it names none, of each image by its folder."""
    found: dict[str, str] = {}
    shared = []
    for key in ("train", "val", "valid", "test"):
        for entry in content.get(key) or () if isinstance(content.get(key), list) else [content.get(key)]:
            if not isinstance(entry, str):
                continue
            images = _listed(folder, name, str(content.get("path") or ""), entry)
            if not images and key != "test":
                raise ValueError(
                    f"{folder.root / name}: {key} is {entry!r}, where {folder.root} holds no image; correct it, or copy the "
                    "images there"
                )
            shared += [image for image in images if image in found]
            found |= {image: split_of(f"{key}/x") for image in images if image not in found}
    if shared and set(found.values()) == {"train"}:  # train and val are the same entry
        raise ValueError(
            f"{folder.root / name}: train and val are the same images, so that no result would say anything about new images; "
            "remove the line of val, and the images are split"
        )
    return found or {image: split_of(image) for image in folder.images}


def _listed(folder: Folder, name: str, path: str, entry: str) -> list[str]:
    """The images of an entry of ``data.yaml``: a folder or a list, whose path may be of another computer."""
    words = re.split(r"[\\/]+", f"{path}/{entry}" if path else entry)
    words = [word for word in words if word not in ("", ".", "..")]
    own = PurePosixPath(name).parent
    lists = set(folder.files(".txt"))
    for start in range(len(words) + 1):
        for base in dict.fromkeys((own.joinpath(*words[start:]).as_posix(), "/".join(words[start:]) or ".")):
            if base in lists:
                lines = (folder.root / base).read_text(encoding="utf-8-sig").splitlines()
                return [image for line in lines if line.strip() and (image := folder.find(line.strip(), base))]
            if start < len(words) and (images := [image for image in folder.images if image.startswith(f"{base}/")]):
                return images
    return []


def _size(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            return displayed_size(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Dataset.examine names it
        return 0, 0


def _yolo_object(values: list[str], num_classes: int, size: tuple[int, int]) -> dict:
    try:
        category, *numbers = map(float, values)
    except ValueError:
        raise ValueError(f"{' '.join(values)!r} is not a class and numbers; export the labels again") from None
    if category != int(category) or not 0 <= category < num_classes:
        raise ValueError(
            f"class {values[0]} is not one of 0 to {num_classes - 1}; add its name to data.yaml, or correct the number"
        )
    if len(numbers) not in (4, 5) and (len(numbers) < 6 or len(numbers) % 2):
        raise ValueError(
            f"{len(numbers)} numbers after the class; a box has 4 and a polygon 3 or more points (x, y): correct it"
        )
    is_box = len(numbers) in (4, 5)  # the fifth is a score
    x, y, w, h = numbers[:4]
    extremes = (x - w / 2, y - h / 2, x + w / 2, y + h / 2) if is_box else numbers
    if not all(math.isfinite(value) and -0.01 <= value <= 1.01 for value in extremes):
        raise ValueError(
            f"the coordinates {' '.join(values[1:5])} leave 0 to 1; write them as fractions of width and height"
        )
    scale = [size[0], size[1]] * (len(extremes) // 2)
    pixels = [min(max(value, 0.0), 1.0) * side for value, side in zip(extremes, scale, strict=True)]
    return _object(int(category), tuple(pixels)) if is_box else _outlined(int(category), [pixels], size)


def read_voc(folder: Folder, files: Mapping[str, Any]) -> Dataset:
    """Pascal VOC: an XML file per image; ``ImageSets/Main/*.txt`` are its splits. Objects marked difficult become crowds."""
    listed = {
        line.split()[0]: split_of(name, words=True)
        for name in folder.files("/train.txt", "/val.txt", "/test.txt")
        for line in (folder.root / name).read_text(encoding="utf-8-sig").splitlines()
        if line.strip() and "ImageSets" in name
    }
    classes = sorted({entry.findtext("name", "").strip() for root in files.values() for entry in root.iter("object")})
    corners = [
        float(x.text or 0)
        for root in files.values()
        for tag in ("xmin", "ymin")
        for x in root.iter(tag)
        if _is_number(x)
    ]
    # The format counts pixels from 1, and includes the last; files with a 0 come from programs that count from 0.
    origin = 0 if 0 in corners else 1
    samples, problems, total = [], Problems(), 0
    lost = Problems()
    for name, root in files.items():
        stated = root.findtext("filename") or PurePosixPath(name).stem
        stem = PurePosixPath(name).stem
        image = folder.find(stated, name) or next(
            (p for s in (".jpg", ".png", ".jpeg") if (p := folder.find(stem + s, name))), None
        )
        if image is None:
            lost.append(
                f"{folder.root / name}: its image {stated!r} is not in {folder.root}; copy it there, or correct filename"
            )
            continue
        size = tuple(int(float(root.findtext(f"size/{side}") or 0)) for side in ("width", "height"))
        sample = Sample(image, listed.get(stem, split_of(name)), size)
        samples.append(sample)
        for entry in root.iter("object"):
            total += 1
            try:
                box = [float(entry.findtext(f"bndbox/{side}") or "nan") for side in ("xmin", "ymin", "xmax", "ymax")]
                points = [float(point.text) for point in entry.findall("polygon/*")]
            except (TypeError, ValueError):
                box, points = [math.nan] * 4, []
            if not all(map(math.isfinite, [*box, *points])):
                problems.append(
                    f"{folder.root / name}: an object has no bndbox of four numbers; correct it, or export it again"
                )
                continue
            box = (box[0] - origin, box[1] - origin, *box[2:])
            polygons = [[value - origin for value in points]] if len(points) >= 6 else None
            category = classes.index(entry.findtext("name", "").strip())
            sample.objects.append(_object(category, box, polygons, entry.findtext("difficult") == "1"))
    lost.check(len(files), "files")
    problems.check(total, "objects")
    return Dataset(folder.root, "Pascal VOC", "detection", classes, samples, lost[:5] + problems[:5])


def _is_number(element: ElementTree.Element) -> bool:
    try:
        return math.isfinite(float(element.text))
    except (TypeError, ValueError):
        return False


def read_labelme(folder: Folder, files: Mapping[str, Any]) -> Dataset:
    """LabelMe: a JSON file per image, with polygons, rectangles and circles; shapes of one ``group_id`` are one object."""
    kinds = ("polygon", "rectangle", "circle")
    shapes = [shape for content in files.values() for shape in content["shapes"] if isinstance(shape, Mapping)]
    classes = sorted({str(shape.get("label")) for shape in shapes if shape.get("shape_type", "polygon") in kinds})
    samples, problems, lost = [], Problems(), Problems()
    for name, content in files.items():
        stated = str(content.get("imagePath") or "")
        image = folder.find(stated, name)
        if image is None:
            lost.append(
                f"{folder.root / name}: its image {stated!r} is not in {folder.root}; copy it there, or correct imagePath"
            )
            continue
        size = int(content.get("imageWidth") or 0), int(content.get("imageHeight") or 0)
        size = size if all(size) else _size(folder.root / image)
        sample = Sample(image, split_of(name), size)
        samples.append(sample)
        objects: dict[Any, tuple[int, list[list[float]]]] = {}
        for index, shape in enumerate(content["shapes"]):
            try:
                points = _outline(shape, kinds)
            except (ValueError, TypeError, AttributeError) as error:
                problems.append(f"{folder.root / name}, shape {index}: {error}; correct it in LabelMe")
                continue
            group = shape.get("group_id")
            key = index if group is None else (group, shape["label"])
            objects.setdefault(key, (classes.index(str(shape["label"])), []))[1].append(points)
        sample.objects = [_outlined(category, polygons, size) for category, polygons in objects.values()]
    lost.check(len(files), "files")
    problems.check(len(shapes), "shapes")
    dataset = Dataset(folder.root, "LabelMe", "detection", classes, samples, lost[:5] + problems[:5])
    if all(shape.get("shape_type") == "rectangle" for shape in shapes):
        for sample in samples:
            for entry in sample.objects:
                del entry["segmentation"]
    return dataset


def _outline(shape: Mapping[str, Any], kinds: tuple[str, ...]) -> list[float]:
    """A LabelMe shape as a polygon."""
    kind, points = shape.get("shape_type", "polygon"), np.array(shape.get("points"), float)
    if kind not in kinds:
        raise ValueError(f"a {kind} has no area; it must be one of {', '.join(kinds)}")
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < (3 if kind == "polygon" else 2):
        raise ValueError(
            f"the {kind} has {len(points)} points; a polygon needs three or more, a rectangle and a circle two"
        )
    if kind == "rectangle":
        (left, top), (right, bottom) = points.min(0), points.max(0)
        points = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    if kind == "circle":  # its centre, and a point on it
        angles = np.linspace(0, 2 * np.pi, 32, endpoint=False)
        points = points[0] + math.dist(*points) * np.stack([np.cos(angles), np.sin(angles)], 1)
    return points.ravel().tolist()


_READERS: dict[str, Callable[[Folder, Mapping[str, Any]], Dataset]] = {
    "COCO": read_coco,
    "YOLO": read_yolo,
    "Pascal VOC": read_voc,
    "LabelMe": read_labelme,
}


# --- class maps and class folders --------------------------------------------------------------------------------------------


def _pair_maps(folder: Folder) -> dict[str, str]:
    """The class map of each image, by the part of their paths that is not ``images``, ``masks``, ``_labelIds`` and the like."""
    maps, images = {}, {}
    for path in folder.images:
        *folders, name = PurePosixPath(path).parts
        words = [*folders, *re.split(r"[_\-.]", PurePosixPath(name).stem)]
        is_map = name.lower().endswith((".png", ".tif", ".tiff", ".bmp")) and any(
            w.lower() in _MAP_WORDS for w in words
        )
        key = tuple(word for word in words if word.lower() not in (*_MAP_WORDS, *_IMAGE_WORDS))
        (maps if is_map else images).setdefault(key, path)
    return {image: maps[key] for key, image in images.items() if key in maps}


def read_class_maps(folder: Folder, pairs: Mapping[str, str]) -> Dataset:
    """Class maps: a picture of class numbers for each image; 255 is not annotated."""
    samples, problems, values = [], Problems(), set()
    for image, seg_map in pairs.items():
        path = folder.root / seg_map
        try:
            with Image.open(path) as picture:
                if picture.mode not in ("1", "L", "P", "I", "I;16"):
                    problems.append(
                        f"{path}: the class map is a colour picture; save it as an 8-bit picture of class numbers"
                    )
                    continue
                size, found = picture.size, np.unique(np.asarray(picture)).tolist()
        except (OSError, SyntaxError, ValueError) as error:
            problems.append(f"{path}: the class map cannot be read ({error}); export it again")
            continue
        if size != _size(folder.root / image):
            remedy = "export it at the size of the image"
            problems.append(f"{path}: the class map has {size[0]}x{size[1]} pixels, its image another size; {remedy}")
            continue
        values.update(found)
        samples.append(Sample(image, split_of(image), size, seg_map=seg_map))
    problems.check(len(pairs), "class maps")
    notes = list(problems)
    named = next((name for name in folder.files(".txt", ".names") if PurePosixPath(name).name in _NAME_FILES), None)
    classes = _class_names(folder, folder.root, None) if named else []
    label_map = {}
    if values <= {0, 255}:  # a mask of one kind of object, drawn in white
        label_map, classes = {255: 1}, classes or ["background", "object"]
        notes.append(
            f"{folder.root / samples[0].seg_map}: the class maps hold 0 and 255 only; 255 is taken for class 1"
        )
    highest = max(values - {255}, default=0)
    if highest > 254 or (classes and highest >= len(classes)):
        raise ValueError(
            f"the class maps of {folder.root} hold class {highest}; name {highest + 1} classes in {named or 'classes.txt'}"
        )
    classes = classes or [f"class {index}" for index in range(highest + 1)]
    if not named:
        notes.append(
            f"{folder.root} does not name the classes of its maps; add classes.txt, a name per line, from class 0 on"
        )
    return Dataset(folder.root, "class maps", "segmentation", classes, samples, notes, label_map=label_map)


def _class_folders(folder: Folder) -> dict[str, tuple[str, str]]:
    """The split and class of each image; empty if there are not two classes."""
    paths = {image: PurePosixPath(image).parent.parts for image in folder.images}
    while len({parts[:1] for parts in paths.values()}) == 1 and min(map(len, paths.values())) > 1:
        if split_of(f"{next(iter(paths.values()))[0]}/x"):
            break
        paths = {image: parts[1:] for image, parts in paths.items()}
    found = {}
    for image, parts in paths.items():
        split = split_of(f"{parts[0]}/x") if parts else ""
        rest = parts[1:] if split else parts
        if rest:
            found[image] = split, rest[0]
    names = {name for _, name in found.values()}
    return found if len(names) > 1 and not names <= {*_IMAGE_WORDS, *_MAP_WORDS} else {}


def read_class_folders(folder: Folder, labels: Mapping[str, tuple[str, str]]) -> Dataset:
    """Class folders, under ``train/`` and ``val/`` where there are splits."""
    classes = sorted({name for _, name in labels.values()})
    samples = [Sample(image, split, label=classes.index(name)) for image, (split, name) in labels.items()]
    notes = []
    if outside := [image for image in folder.images if image not in labels]:
        notes.append(
            f"{folder.root / outside[0]} and {len(outside) - 1} other images lie outside of the class folders and are left out; "
            "move them into one to use them"
        )
    return Dataset(folder.root, "class folders", "classification", classes, samples, notes)
