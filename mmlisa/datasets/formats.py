"""Readers of the usual annotation formats, and which of them a folder needs.

The readers of objects turn their files into COCO's form, and :func:`_read_objects` checks it. Polygons stay as they are:
supervision's readers draw each into a mask, which takes ``objects x height x width`` bytes per image and rounds the outline.
The tests read files that supervision has written.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from xml.etree import ElementTree

import cv2
import numpy as np
import yaml
from PIL import Image

from .annotations import MOST_OUTSIDE, find_crowded, find_problems, share_outside, without
from .folder import (
    IMAGE_SUFFIXES,
    Dataset,
    Folder,
    Problems,
    Sample,
    folder_words,
    is_image_word,
    is_map_word,
    split_of,
)

_EXPECTED = (
    "COCO (*.json), YOLO (data.yaml and labels/*.txt), Pascal VOC (*.xml), LabelMe (*.json), class maps (masks/*.png) "
    "or one folder of images per class"
)
_YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_MAX_UNNAMED = (
    1000  # classes without a name that data.yaml may have; a larger number is a mistake, and fills the memory
)
_MOST_CLASSES = 182  # of COCO-Stuff; class maps without names and with higher values are rather masks with soft edges
_NAME_FILES = ("classes.txt", "labels.txt", "class_names.txt", "obj.names")


def read(root: str | Path, task: str = "") -> Dataset:
    """Recognises the format of a folder and reads it.

    Args:
        root: the folder.
        task: one of :data:`mmlisa.datasets.folder.TASKS`; if empty, the first that is found of boxes and outlines, class maps
            and class folders.

    Raises:
        ValueError: the folder holds no annotations or several formats, or more than a tenth of the entries cannot be used;
            names the file and the remedy.
        FileNotFoundError, NotADirectoryError: the folder does not exist.
    """
    folder, foreign = Folder(root), ""
    if task in ("", "detection") and (found := _annotation_files(folder)):
        if len(found) > 1:
            listed = "; ".join(f"{name}: {next(iter(files))}" for name, files in found.items())
            raise ValueError(
                f"{root} holds annotations in several formats ({listed}); move each format, with its images, into a folder of "
                "its own and name one of them"
            )
        ((name, files),) = found.items()
        dataset = _read_objects(folder, name, files)
    elif task in ("", "segmentation") and (pairs := _pair_maps(folder, unpaired := Problems())):
        dataset = read_class_maps(folder, pairs, unpaired)
    elif (
        task in ("", "classification")
        and (labels := _class_folders(folder))
        and (task or not (foreign := _foreign_annotations(folder)))
    ):
        dataset = read_class_folders(folder, labels)
    elif labels := [name for name in folder.files(".txt") if "labels" in PurePosixPath(name).parts]:
        raise ValueError(
            f"{folder.root / labels[0]} belongs to YOLO, but {root} has no data.yaml; add one with names: [first, second, …]"
        )
    elif foreign:
        raise ValueError(
            f"{folder.root / foreign} seems to annotate the images in a format that is not known; add the annotations as "
            f"{_EXPECTED}. If the folders of {root} are the classes, add --task classification"
        )
    else:
        raise ValueError(
            f"{root} holds {len(folder.images)} images but no annotations{f' for {task}' * bool(task)}: add them as {_EXPECTED}"
        )
    unassigned = dataset.split("")
    if unassigned and (dataset.split("train") or dataset.split("val")):
        dataset.samples = [sample for sample in dataset.samples if sample.split]
        dataset.notes.append(
            f"{folder.root / unassigned[0].path}: this image is outside of the folders train, val and test; all "
            f"{len(unassigned)} such images are left out; move them into one of these folders to use them"
        )
    if len(dataset.split("test")) == len(dataset.samples):
        raise ValueError(
            f"all {len(dataset.samples)} images of {root} are test images, as a folder, a list or the annotation file is called "
            "test; rename it, or add images to train on"
        )
    return dataset


def _annotation_files(folder: Folder) -> dict[str, dict[str, Any]]:
    """The parsed annotation files of each format of objects that the folder holds, by name."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _READERS}
    for name in folder.files(".json"):
        content = _parse(folder, name, "JSON", json.loads)
        if isinstance(content, dict) and isinstance(content.get("shapes"), list):
            content.pop("imageData", None)  # the image itself in base64; of all files it could fill the memory
            found["LabelMe"][name] = content
        elif isinstance(content, Mapping) and {"images", "annotations", "categories"} <= content.keys():
            found["COCO"][name] = content
    for name in folder.files(".xml"):
        content = _parse(folder, name, "XML", ElementTree.fromstring)
        if content.tag == "annotation":
            found["Pascal VOC"][name] = content
    for name in folder.files(".yaml", ".yml"):
        content = _parse(folder, name, "YAML", yaml.safe_load)
        if (isinstance(content, Mapping) and "names" in content) or PurePosixPath(name).name in _YAML_NAMES:
            found["YOLO"][name] = content
    return {name: files for name, files in found.items() if files}


def _foreign_annotations(folder: Folder) -> str:
    """A file that annotates images in a format without a reader, such as KITTI's, DOTA's or a CSV file; empty if there is none.

    Most images have such a file of their name, or one file holds the names of the images.
    """
    stems = {PurePosixPath(image).stem for image in folder.images}
    beside: dict[str, str] = {}
    for file in folder.files(".txt", ".json", ".xml", ".csv", ".mat"):
        stem = PurePosixPath(file).stem
        stem = stem if stem in stems else PurePosixPath(stem).stem  # of a.jpg.json
        if stem in stems:
            beside.setdefault(stem, file)
    if 2 * len(beside) > len(stems):
        return next(iter(beside.values()))
    some = [PurePosixPath(image).name for image in folder.images[:: max(1, len(folder.images) // 20)]]
    for file in folder.files(".json", ".jsonl", ".xml", ".csv", ".tsv"):
        with suppress(ValueError):  # in another encoding
            text = folder.text(file)
            if all(name in text for name in some):
                return file
    return ""


def _parse(folder: Folder, name: str, kind: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(folder.text(name))
    except (ValueError, ElementTree.ParseError, yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        if mark := getattr(error, "problem_mark", None):  # YAML's; the other parsers name the line themselves
            reason += f": line {mark.line + 1}"
        raise ValueError(
            f"{folder.root / name} is not valid {kind} ({reason}); export it again, or correct it"
        ) from error


# --- objects: boxes and outlines ---------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A file of annotations in COCO's form: of many images, or of one. Images may lack their size."""

    file: str
    split: str
    content: dict[str, list[dict[str, Any]]]


class _Reader(NamedTuple):
    """A format of objects.

    Attributes:
        read: yields the parts. The two lists collect messages about missing or unreadable images, and about bad objects.
        entry: what the format calls an annotation, in messages.
        remedy: of a bad annotation.
    """

    read: Callable[[Folder, Mapping[str, Any], Problems, Problems], Iterator[_Part]]
    entry: str
    remedy: str


def _read_objects(folder: Folder, kind: str, files: Mapping[str, Any]) -> Dataset:
    """Reads a format of objects and leaves out what a training cannot use."""
    reader, lost, problems = _READERS[kind], Problems(), Problems()
    parts = list(reader.read(folder, files, lost, problems))
    objects = [entry for part in parts for entry in part.content["annotations"]]
    total = len(objects) + len(problems)
    has_masks = 2 * sum(bool(entry.get("segmentation")) for entry in objects) > len(objects)
    classes: list[str] = []
    samples: dict[tuple[str, str], Sample] = {}
    for file, split, content in parts:
        path = folder.root / file
        _leave_out_absent(folder, file, split, content, lost)
        try:
            found = find_problems(content, has_masks)
        except ValueError as error:
            raise ValueError(f"{path} is not a {kind} file: {error}; export it again") from error
        # Without an outline, the box is taken for it; some programs write an empty list.
        found = [p for p in found if p.reason not in ("it has no segmentation", "its segmentation is empty")]
        for problem in found:
            entry = reader.entry if problem.part == "annotations" else "image"
            problems.append(f"{path}, {entry} {problem.id}: {problem.reason}; {reader.remedy}")
        if kind == "COCO" and (outside := share_outside(content)) > MOST_OUTSIDE:
            folder.notes.append(
                f"warning: {path}: {outside:.0%} of the boxes reach outside their image; if they are (x1, y1, x2, y2), write "
                "them as (x, y, width, height)"
            )
        usable = without(content, found)
        # Roboflow lists the name of the whole project as a category that no object has.
        parents = {p for category in usable["categories"] if isinstance(p := category.get("supercategory"), str)}
        used = {entry["category_id"] for entry in usable["annotations"]}
        names = {
            category["id"]: category["name"]
            for category in sorted(usable["categories"], key=lambda category: category["id"])
            if category["id"] in used or category["name"] not in parents
        }
        classes = list(dict.fromkeys([*classes, *names.values()]))  # categories may share a name
        by_id = {}
        for image in usable["images"]:
            name = image["file_name"]
            if (split, name) in samples:
                if any(sample.path == name for sample in by_id.values()):
                    raise ValueError(f"{path}: two of its images are {name}; keep one of both entries")
                raise ValueError(f"{path}: another file annotates {name}, too; move one of both files elsewhere")
            by_id[image["id"]] = Sample(name, split or split_of(name), (int(image["width"]), int(image["height"])))
            samples[split, name] = by_id[image["id"]]
        for entry in usable["annotations"]:
            kept = {key: entry[key] for key in ("bbox", "area", "segmentation") if entry.get(key)}
            kept |= {"category_id": classes.index(names[entry["category_id"]]), "iscrowd": entry.get("iscrowd", 0)}
            by_id[entry["image_id"]].objects.append(kept)
    lost.check(len(samples) + len(lost), "images")
    problems.check(total, "objects")
    notes = folder.notes + lost.shown("images") + problems.shown("objects")
    objects = [entry for sample in samples.values() for entry in sample.objects]
    if not objects:
        raise ValueError(f"{folder.root}: no image has an annotation ({kind}); add labels, or name another folder")
    if kind == "COCO":
        notes += _read_crowds_as_objects(folder.root, classes, objects)
    if crowds := sum(bool(entry["iscrowd"]) for entry in objects):
        notes.append(
            f"{crowds} of {len(objects)} objects are crowds or difficult; the training and the results ignore them"
        )
    bare = [entry for entry in objects if "segmentation" not in entry]
    if has_masks and bare:
        notes.append(f"{len(bare)} of {len(objects)} objects have no outline; their box is taken for it")
    for entry in bare if has_masks else ():
        x, y, w, h = entry["bbox"]
        entry["segmentation"] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
    for entry in () if has_masks else objects:
        entry.pop("segmentation", None)
    dataset = Dataset(folder.root, kind, "detection", classes, list(samples.values()), notes, has_masks=has_masks)
    _leave_out_blank(dataset, {sample.split for sample in dataset.samples if sample.objects})
    return dataset


def _read_crowds_as_objects(root: Path, classes: list[str], objects: list[dict[str, Any]]) -> list[str]:
    """Makes objects of the crowds of the classes that :func:`find_crowded` names, and returns what to note about them."""
    categories = [{"id": label, "name": name} for label, name in enumerate(classes)]
    crowded = find_crowded({"categories": categories, "annotations": objects})
    wrong = [entry for entry in objects if entry["iscrowd"] and classes[entry["category_id"]] in crowded]
    for entry in wrong:
        entry["iscrowd"] = 0
    return [
        f"warning: {root}: most annotations of {', '.join(crowded)} are crowds (iscrowd=1), as CVAT exports masks; these "
        f"{len(wrong)} are read as objects"
    ] * bool(wrong)


def _leave_out_blank(dataset: Dataset, annotated: Collection[str]) -> None:
    """Leaves out a validation or test whose annotations were not published: every model has an AP of 0 on it."""
    for name in ("val", "test"):
        if name not in annotated and (blank := dataset.split(name)):
            dataset.samples = [sample for sample in dataset.samples if sample.split != name]
            dataset.notes.append(
                f"{dataset.root}: none of the {len(blank)} images of {name} has an annotation; all are left out; add annotations "
                "to use them"
            )


def _leave_out_absent(folder: Folder, file: str, split: str, content: dict[str, list], lost: Problems) -> None:
    """Sets the paths of images in the folder, and sizes that are not stated; removes images that are not there."""
    absent = set()  # ids as text, since a wrong one may be a list
    for image in content["images"]:
        stated = str(image.get("file_name"))
        # VIA writes -1 for both sides, and Label Studio null where it did not have the image.
        is_sized = all(isinstance(side := image.get(key), int | float) and side > 0 for key in ("width", "height"))
        if not (found := folder.find(stated, file, split)):
            lost.append(
                f"{folder.root / file}: its image {stated!r} is not in {folder.root}; copy it there, or correct its name"
            )
            absent.add(repr(image.get("id")))
        elif not is_sized and not (size := folder.size(found)):
            lost.append(f"{folder.root / found}: the image cannot be read; export or copy it again")
            absent.add(repr(image.get("id")))
        else:
            image["file_name"] = found
            if not is_sized:
                image["width"], image["height"] = size
    for part, key in (("images", "id"), ("annotations", "image_id")) if absent else ():
        content[part] = [entry for entry in content[part] if repr(entry.get(key)) not in absent]


def _object(category: Any, corners: Any = None, polygons: Any = None, crowd: bool = False) -> dict[str, Any]:
    """An annotation by left, top, right and bottom in pixels, or, without them, around its outlines."""
    entry = {"category_id": category, "iscrowd": int(crowd)}
    if polygons:
        entry["segmentation"] = polygons
    if corners is None:
        points = np.concatenate([np.reshape(polygon, (-1, 2)) for polygon in polygons])
        corners = [*points.min(0).tolist(), *points.max(0).tolist()]
    left, top, right, bottom = corners
    outlines = [np.float32(polygon).reshape(-1, 2) for polygon in polygons or ()]
    area = sum(map(cv2.contourArea, outlines)) or (right - left) * (bottom - top)
    return {"bbox": [left, top, right - left, bottom - top], "area": area, **entry}


def _one_image(
    file: str, split: str, name: str, size: tuple[int, int] | None, objects: Mapping[int, dict], categories: list[dict]
) -> _Part:
    """The part of one image; ``objects`` by their numbers in the file. The parts of a data set share ``categories``."""
    image = {"id": 0, "file_name": name, **(dict(zip(("width", "height"), size, strict=True)) if size else {})}
    annotations = [{**entry, "id": number, "image_id": 0} for number, entry in objects.items()]
    return _Part(file, split, {"images": [image], "annotations": annotations, "categories": categories})


def _read_coco(folder: Folder, files: Mapping[str, Any], lost: Problems, problems: Problems) -> Iterator[_Part]:
    """COCO's layout and Roboflow's: a file per split, or one for all images."""
    instances = {name: content for name, content in files.items() if PurePosixPath(name).name.startswith("instances")}
    for name, content in (instances or files).items():
        for part in ("images", "annotations", "categories"):
            if not isinstance(content[part], list) or not all(isinstance(entry, dict) for entry in content[part]):
                raise ValueError(f"{folder.root / name}: {part} is not a list of dicts; export it again")
        for entry in content["annotations"]:
            _complete(entry)
        yield _Part(name, split_of(name, words=True), content)


def _complete(entry: dict[str, Any]) -> None:
    """Brings an annotation into COCO's form: an outline in a list, a box around it, an area. What is invalid stays so."""
    outline, box = entry.get("segmentation"), entry.get("bbox")
    if isinstance(outline, list):
        if outline and all(isinstance(number, int | float) for number in outline):  # of VIA
            outline = [outline]
        outline = entry["segmentation"] = [polygon for polygon in outline if polygon != []]
        if outline and (box is None or (isinstance(box, list) and None in box)):
            with suppress(OverflowError, TypeError, ValueError):
                around = _object(None, polygons=outline)
                entry |= {"bbox": around["bbox"], "area": around["area"]}
    if not entry.get("area"):
        with suppress(KeyError, IndexError, TypeError):
            entry["area"] = entry["bbox"][2] * entry["bbox"][3]


def _read_yolo(folder: Folder, files: Mapping[str, Any], lost: Problems, problems: Problems) -> Iterator[_Part]:
    """Ultralytics' layout and Roboflow's: ``data.yaml``, ``images/`` and ``labels/``; boxes, or polygons, in fractions."""
    (name, content), *more = files.items()
    if more:
        raise ValueError(f"{folder.root} holds {name} and {more[0][0]}, both of YOLO; name the folder of one of them")
    categories = [{"id": key, "name": each} for key, each in enumerate(_class_names(folder.root / name, content))]
    labels, last = set(folder.files(".txt")), None
    if "kpt_shape" in content:
        last = 5  # the class and its box
        folder.notes.append(f"{folder.root / name}: its keypoints are not used, only its boxes")
    for image, split in _yolo_images(folder, name, content, lost).items():
        label = next((label for label in _label_names(image) if label in labels), None)
        size, objects = folder.size(image), {}
        for number, line in enumerate(folder.text(label).splitlines() if label and size else (), 1):
            try:
                if line.strip():
                    objects[number] = _yolo_object(line.split()[:last], size)
            except ValueError as error:
                problems.append(f"{folder.root / label}, line {number}: {error}")
        yield _one_image(label or name, split, image, size, objects, categories)
    labels -= {label for image in folder.images for label in _label_names(image)}
    lost += [
        f"{folder.root / label}: no image belongs to these labels; copy it to {folder.root}, or remove the labels"
        for label in sorted(labels)
        if "labels" in PurePosixPath(label).parts
        and PurePosixPath(label).name not in _NAME_FILES  # LabelImg's classes.txt
    ]


def _yolo_object(words: list[str], size: tuple[int, int]) -> dict[str, Any]:
    try:
        category, *numbers = map(float, words)
    except ValueError:
        raise ValueError(f"{' '.join(words)!r} is not a class and numbers; export the labels again") from None
    if not all(-0.01 <= number <= 1.01 for number in numbers):
        coordinates = " ".join(words[1:5])
        raise ValueError(f"the coordinates {coordinates} leave 0 to 1; write them as fractions of width and height")
    category = int(category) if category.is_integer() else category
    if len(numbers) >= 6 and len(numbers) % 2 == 0:
        return _object(category, polygons=[(np.clip(numbers, 0, 1).reshape(-1, 2) * size).ravel().tolist()])
    if len(numbers) not in (4, 5):  # the fifth is a score
        raise ValueError(
            f"{len(numbers)} numbers after the class; a box has 4 and a polygon 3 or more points (x, y): correct it"
        )
    x, y, w, h = numbers[:4]
    corners = np.clip([[x - w / 2, y - h / 2], [x + w / 2, y + h / 2]], 0, 1) * size
    return _object(category, corners.ravel().tolist())


def _label_names(image: str) -> list[str]:
    """Where YOLO keeps the labels of an image: under ``labels`` instead of ``images``, or beside it."""
    path = PurePosixPath(image).with_suffix(".txt")
    places = [index for index, part in enumerate(path.parts) if part == "images"]
    moved = [PurePosixPath(*path.parts[:i], "labels", *path.parts[i + 1 :]).as_posix() for i in reversed(places)]
    return [*moved, f"labels/{path.name}", path.as_posix()]


def _class_names(source: Path, content: Any) -> list[str]:
    names = content.get("names") if isinstance(content, Mapping) else None
    if isinstance(names, Mapping) and all(str(key).isdecimal() for key in names):
        numbered = {int(key): name for key, name in names.items()}
        if (highest := max(numbered, default=-1)) > len(names) + _MAX_UNNAMED:
            raise ValueError(
                f"{source}: names has {len(names)} entries, and one is class {highest}; number the classes from 0 on"
            )
        names = [numbered.get(index, f"class {index}") for index in range(highest + 1)]
    if not isinstance(names, list) or not names:
        raise ValueError(f"{source} has no list of class names; add names: [first, second, …]")
    return [str(name) for name in names]


def _yolo_images(folder: Folder, name: str, content: Mapping[str, Any], lost: Problems) -> dict[str, str]:
    """The split of each image that ``data.yaml`` names, or, where it names none, of each image by its folder.

    ``lost`` collects messages about images that a list names and that are missing.
    """
    found: dict[str, str] = {}
    for key in ("val", "valid", "test", "train"):  # an image of several splits is not trained on
        entries = content.get(key) or ()
        for entry in [entries] if isinstance(entries, str) else entries:
            images = _entry_images(folder, name, str(content.get("path") or ""), str(entry), lost)
            if not images and key != "test":
                raise ValueError(
                    f"{folder.root / name}: {key} is {entry!r}, where {folder.root} holds no image; correct it, or copy the "
                    "images there"
                )
            if key == "train" and found.keys() >= (trained := set(images)):
                folder.notes.append(
                    f"warning: {folder.root / name}: all images of train are also in val or test, so that results on them say "
                    "nothing about new images; they are trained on, and, if val has no others, a part is drawn for validation"
                )
                found = {image: split for image, split in found.items() if image not in trained}
            found = {**dict.fromkeys(images, split_of(f"{key}/x")), **found}
    return found or {image: split_of(image) for image in folder.images}


def _entry_images(folder: Folder, name: str, path: str, entry: str, lost: Problems) -> list[str]:
    """The images of an entry of ``data.yaml``: a folder or a list, whose path may be of another computer."""
    words = [word for word in re.split(r"[\\/]+", f"{path}/{entry}") if word not in ("", ".", "..")]
    own = PurePosixPath(name).parent
    lists = set(folder.files(".txt"))
    for start in range(len(words) + 1):
        for base in dict.fromkeys((own.joinpath(*words[start:]).as_posix(), "/".join(words[start:]) or ".")):
            if base in lists:
                lines = [line.strip() for line in folder.text(base).splitlines() if line.strip()]
                found = {line: folder.find(line, base) for line in lines}
                if any(found.values()):  # else no part of the split was downloaded
                    lost += [
                        f"{folder.root / base}: its image {line!r} is not in {folder.root}; copy it there, or remove the line"
                        for line, image in found.items()
                        if not image
                    ]
                return [image for image in found.values() if image]
            if start < len(words) and (images := [image for image in folder.images if image.startswith(f"{base}/")]):
                return images
    return []


def _read_voc(folder: Folder, files: Mapping[str, Any], lost: Problems, problems: Problems) -> Iterator[_Part]:
    """Pascal VOC: an XML file per image; ``ImageSets/Main/*.txt`` are its splits. Objects marked difficult become crowds."""
    listed = _listed_splits(folder, "Main", {PurePosixPath(name).stem for name in files})
    names = {entry.findtext("name", "").strip() for root in files.values() for entry in root.iter("object")}
    categories = [{"id": name, "name": name} for name in sorted(names - {""})]
    # The format counts pixels from 1, and includes the last; files with a 0 come from programs that count from 0.
    starts = {_number(x.text) for root in files.values() for tag in ("xmin", "ymin") for x in root.iter(tag)}
    origin = 0 if 0 in starts else 1
    for name, root in files.items():
        stem = PurePosixPath(name).stem
        image = _image_of(folder, name, root.findtext("filename") or "")
        size = [_number(root.findtext(f"size/{side}")) for side in ("width", "height")]
        objects = {}
        for number, entry in enumerate(root.iter("object"), 1):
            corners = [_number(entry.findtext(f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")]
            corners = [corners[0] - origin, corners[1] - origin, *corners[2:]]
            points = [_number(point.text) - origin for point in entry.findall("polygon/*")]
            outline = [points] if len(points) >= 6 and len(points) % 2 == 0 else None
            category, is_crowd = entry.findtext("name", "").strip(), entry.findtext("difficult") == "1"
            objects[number] = _object(category, corners, outline, is_crowd)
        known = tuple(map(int, size)) if all(0 < side < math.inf for side in size) else None
        yield _one_image(name, listed.get(stem, split_of(name)), image, known, objects, categories)


def _image_of(folder: Folder, file: str, stated: str) -> str:
    """The image of a file with its annotations: the one that it states, or else, if that is missing, the one of its name."""
    stem = PurePosixPath(file).stem
    names = [stated, *(f"{stem}{form}" for suffix in IMAGE_SUFFIXES for form in (suffix, suffix.upper()))]
    found = (folder.find(name, file, split_of(file)) for name in names if name)
    return next(filter(None, found), stated or stem)


def _listed_splits(folder: Folder, kind: str, stems: Collection[str]) -> dict[str, str]:
    """The splits of Pascal VOC's images by their stems, from the lists in ``ImageSets`` and ``ImageSets/<kind>``."""
    # The other lists prevail over trainval.txt.
    lists = folder.files("/trainval.txt") + folder.files("/train.txt", "/val.txt", "/test.txt")
    return {  # a name may hold spaces; the lists of a class have a flag behind it
        line if line in stems else line.rsplit(maxsplit=1)[0]: split_of(name, words=True)
        for name in lists
        if PurePosixPath(f"/{name}").parts[-2] in ("ImageSets", kind) and "ImageSets" in name
        for line in map(str.strip, folder.text(name).splitlines())
        if line
    }


def _number(text: str | None) -> float:
    """A number; NaN if the text is missing or not a number."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _read_labelme(folder: Folder, files: Mapping[str, Any], lost: Problems, problems: Problems) -> Iterator[_Part]:
    """LabelMe: a JSON file per image, with polygons, rectangles and circles; shapes of one ``group_id`` are one object."""
    shapes = [shape for content in files.values() for shape in content["shapes"] if isinstance(shape, Mapping)]
    names = {str(shape.get("label")) for shape in shapes if _shape_type(shape) in _SHAPES}
    categories = [{"id": name, "name": name} for name in sorted(names)]
    for name, content in files.items():
        objects: dict[int, dict] = {}
        groups: dict[Any, tuple[int, list[list[float]]]] = {}
        for index, shape in enumerate(content["shapes"]):
            try:
                kind, label, group = _shape_type(shape), str(shape.get("label")), shape.get("group_id")
                corners, outline = _SHAPES[kind](np.array(shape.get("points"), float).reshape(-1, 2))
                if outline and group is not None:
                    index, outlines = groups.setdefault((group, label), (index, []))
                    outlines += outline
                    outline = outlines
                objects[index] = _object(label, corners, outline)
            except (AttributeError, KeyError, TypeError, ValueError):
                problems.append(
                    f"{folder.root / name}, shape {index}: it is not one of {', '.join(_SHAPES)} with points (x, y); correct it "
                    "in LabelMe"
                )
        size = content.get("imageWidth"), content.get("imageHeight")
        image = _image_of(folder, name, str(content.get("imagePath") or ""))
        yield _one_image(name, split_of(name), image, size if all(size) else None, objects, categories)


def _shape_type(shape: Mapping[str, Any]) -> str:
    """Old versions of LabelMe write no type for polygons, and some converters write null."""
    return str(shape.get("shape_type") or "polygon")


def _circle(points: np.ndarray) -> tuple[None, list[list[float]]]:
    """The circle around the first point through the second."""
    angles = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    return None, [(points[0] + math.dist(*points) * np.stack([np.cos(angles), np.sin(angles)], 1)).ravel().tolist()]


# The corners and outlines of LabelMe's shapes.
_SHAPES: dict[str, Callable[[np.ndarray], tuple[list[float] | None, list[list[float]]]]] = {
    "polygon": lambda points: (None, [points.ravel().tolist()]),
    "rectangle": lambda points: ([*points.min(0).tolist(), *points.max(0).tolist()], []),
    "circle": _circle,
}
_READERS = {
    "COCO": _Reader(_read_coco, "annotation", "correct it, or export the file again"),
    "YOLO": _Reader(_read_yolo, "line", "correct it, or the names in data.yaml"),
    "Pascal VOC": _Reader(_read_voc, "object", "correct it, or export the file again"),
    "LabelMe": _Reader(_read_labelme, "shape", "correct it in LabelMe"),
}


# --- class maps and class folders --------------------------------------------------------------------------------------------


def _pair_maps(folder: Folder, unpaired: Problems) -> dict[str, str]:
    """The class map of each image: that of the same path, apart from words such as ``images``, ``masks`` and ``_labelIds``.

    ``unpaired`` collects messages about images and class maps of the same folders that have no counterpart.

    Raises:
        ValueError: an image has several class maps, or a class map several images.
    """
    maps: dict[tuple[str, ...], list[str]] = {}
    images: dict[tuple[str, ...], list[str]] = {}
    for path in folder.images:
        *folders, name = PurePosixPath(path).parts
        words = [word for folder_name in folders for word in folder_words(folder_name)]
        words += re.split(r"[_\-.]", PurePosixPath(name).stem)
        is_map = name.lower().endswith((".png", ".tif", ".tiff", ".bmp")) and any(map(is_map_word, words))
        key = tuple(word for word in words if not is_map_word(word) and not is_image_word(word))
        (maps if is_map else images).setdefault(key, []).append(path)
    pairs = {}
    for key in images.keys() & maps.keys():
        found = [path for path in maps[key] if "trainids" in path.lower()] or maps[key]
        for what, several in ("images", images[key]), ("class maps", found):
            if len(several) > 1:
                raise ValueError(
                    f"{folder.root / several[0]} and {folder.root / several[1]} are {what} of one pair; move one of both "
                    "elsewhere"
                )
        pairs[images[key][0]] = found[0]
    pictured, mapped = {_kind_of_folder(path) for path in pairs}, {_kind_of_folder(path) for path in pairs.values()}
    drawn = {PurePosixPath(name).stem for name in folder.files(".xml")}  # Pascal VOC has class maps of some images only
    for key in sorted(images.keys() - maps.keys()):
        unpaired += [
            f"{folder.root / path}: this image has no class map; add it, or move the image elsewhere"
            for path in images[key]
            if _kind_of_folder(path) in pictured and split_of(path) != "test" and PurePosixPath(path).stem not in drawn
        ]
    for key in sorted(maps.keys() - images.keys()):
        unpaired += [
            f"{folder.root / path}: this class map has no image; copy the image to {folder.root}, or remove the class map"
            for path in maps[key]
            # Cityscapes keeps pictures with one more word (_color, _instanceIds) beside its class maps.
            if _kind_of_folder(path) in mapped and key[:-1] not in images
        ]
    return {image: pairs[image] for image in sorted(pairs)}


def _kind_of_folder(path: str) -> tuple[str, ...]:
    """The folders' words down to one such as ``images`` or ``masks``, without splits; empty if there is none."""
    words = [
        word for part in PurePosixPath(path).parts[:-1] for word in folder_words(part) if not split_of(f"{word}/x")
    ]
    ends = [index for index, word in enumerate(words, 1) if is_image_word(word) or is_map_word(word)]
    return tuple(words[: ends[0]] if ends else ())


def read_class_maps(folder: Folder, pairs: Mapping[str, str], unpaired: Problems) -> Dataset:
    """Class maps: a picture of class numbers for each image; 255 is not annotated.

    Raises:
        ValueError: more than a tenth cannot be used, ``unpaired`` included, or the classes do not explain the values.
    """
    samples, problems, values, annotated = [], Problems(unpaired), set(), set()
    listed = _listed_splits(folder, "Segmentation", {PurePosixPath(image).stem for image in pairs})
    for image, seg_map in pairs.items():
        path = folder.root / seg_map
        try:
            with Image.open(path) as picture:
                mode, size, found = picture.mode, picture.size, np.unique(np.asarray(picture)).tolist()
        except Image.DecompressionBombError:
            problems.append(f"{path}: the class map has too many pixels; cut it and its image into tiles")
            continue
        except (OSError, SyntaxError, ValueError) as error:
            problems.append(f"{path}: the class map cannot be read ({error}); export it again")
            continue
        if mode not in ("1", "L", "P", "I", "I;16"):
            problems.append(f"{path}: the class map is a colour picture; save it as an 8-bit picture of class numbers")
        elif folder.size(image) not in (None, size):
            problems.append(
                f"{path}: the class map has {size[0]}x{size[1]} pixels, its image another size; export it at that size"
            )
        else:
            values.update(found)
            split = listed.get(PurePosixPath(image).stem, split_of(image))
            samples.append(Sample(image, split, size, seg_map=seg_map))
            if found != [255]:
                annotated.add(split)
    problems.check(len(pairs) + len(unpaired), "class maps")
    notes = folder.notes + problems.shown("class maps")
    names = [name for name in folder.files(".txt", ".names") if PurePosixPath(name).name in _NAME_FILES]
    classes = [line.strip() for line in folder.text(names[0]).splitlines() if line.strip()] if names else []
    label_map = {}
    if values <= {0, 255}:  # a mask of one kind of object, drawn in white
        label_map, classes = {255: 1}, classes or ["background", "object"]
        seen = f"{folder.root / samples[0].seg_map}: class maps hold {' and '.join(map(str, sorted(values)))} only"
        if len(classes) != 2:
            raise ValueError(
                f"{seen}, but {folder.root / names[0]} names {len(classes)}; if 255 is the object, name two, the background "
                "first, otherwise draw every named class with its number"
            )
        if len(values) < 2:
            raise ValueError(
                f"{seen}, of which nothing can be learned; draw objects in 255, or every class with its number"
            )
        notes.append(f"{seen}; 255 is taken for class 1, {classes[1]}")
    highest = max(values - {255}, default=0)
    if 255 in values and _MOST_CLASSES < highest < 255 and highest >= len(classes):
        raise ValueError(
            f"the class maps of {folder.root} hold {len(values)} values up to 255; save masks with soft edges in 0 and 255 only, "
            "or name the classes in classes.txt"
        )
    if highest > 254 or (classes and highest >= len(classes)):
        raise ValueError(
            f"the class maps of {folder.root} hold class {highest}; name {highest + 1} classes in "
            f"{names[0] if names else 'classes.txt'}"
        )
    if not classes and highest >= 2 * len(values - {255}):
        notes.append(
            f"warning: {folder.root}: the class maps hold only the values {', '.join(map(str, sorted(map(int, values))[:8]))}"
            f"{' …' * (len(values) > 8)}, and the model gets {highest + 1} classes; number the classes 0, 1, 2 … in the maps"
        )
    if not classes:
        notes.append(f"{folder.root}: the classes have no names; add classes.txt, a name per line, from class 0 on")
    classes = classes or [f"class {index}" for index in range(highest + 1)]
    dataset = Dataset(folder.root, "class maps", "segmentation", classes, samples, notes, label_map=label_map)
    if not label_map:
        _leave_out_blank(dataset, annotated)
    return dataset


def _class_folders(folder: Folder) -> dict[str, tuple[str, str]]:
    """The split and class of each image; empty if there are not two classes."""
    paths = {image: PurePosixPath(image).parent.parts for image in folder.images}
    while len({parts[:1] for parts in paths.values()}) == 1 and min(map(len, paths.values())) > 1:
        if split_of(f"{next(iter(paths.values()))[0]}/x"):
            break
        paths = {image: parts[1:] for image, parts in paths.items()}
    has_splits = any(len(parts) > 1 and split_of(f"{parts[0]}/x") for parts in paths.values())
    if not has_splits and len({parts[0] for parts in paths.values() if parts and not split_of(f"{parts[0]}/x")}) < 2:
        return {}  # splits of images without classes
    inner: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for parts in paths.values():
        inner.setdefault(parts[:1], set()).add(parts[1:2])
    found = {}
    for image, parts in paths.items():
        split = split_of(f"{parts[0]}/x") if parts and has_splits else ""
        rest = parts[1:] if split else parts
        if len(rest) > 1 and inner[parts[:1]] == {parts[:1]}:  # train/train/cat, as archives of Kaggle have it
            rest = rest[1:]
        if rest:
            found[image] = split, rest[0]
    by_split = [{name for split, name in found.values() if split == wanted} for wanted in ("train", "", "val", "test")]
    names = next(filter(None, by_split), set())
    found = {image: label for image, label in found.items() if label[1] in names}  # without test/unknown
    if len({split_of(name, words=True) for name in names} - {""}) > 1:  # one class may be called train
        listed = ", ".join(sorted(names)[:6])
        raise ValueError(
            f"{folder.root}: the folders {listed} look like splits, not like classes; call splits train, val and test, and "
            "classes by other words"
        )
    if all(map(is_map_word, names)) or any(is_image_word(word) for name in names for word in folder_words(name)):
        return {}  # kinds of pictures, such as images_jpg and depth
    return found if len(names) > 1 else {}


def read_class_folders(folder: Folder, labels: Mapping[str, tuple[str, str]]) -> Dataset:
    """Class folders, under ``train/`` and ``val/`` where there are splits."""
    classes = sorted({name for _, name in labels.values()})
    samples = [Sample(image, split, label=classes.index(name)) for image, (split, name) in labels.items()]
    dataset = Dataset(folder.root, "class folders", "classification", classes, samples, folder.notes)
    if outside := [image for image in folder.images if image not in labels]:
        dataset.notes.append(
            f"{folder.root / outside[0]}: this image is outside of the class folders (those in train, if there are splits); all "
            f"{len(outside)} such images are left out; move them into one to use them"
        )
    return dataset
