"""From a user's folder to the data of a training: its format is recognised, it is read, split and written.

Each format is a module with ``NAME``, ``LAYOUT`` (a line that shows its files to the user), ``recognises(folder)``, the evidence
that a folder is of this format or None, and ``read(folder, content, task)``, the data set of the content of this evidence.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from mmlisa.checkpoints import write_file
from mmlisa.errors import UserError

from . import class_folders, class_maps, coco, labelme, voc, yolo
from .dataset import Dataset, Sample, check_number_of_labels, draw_map, draw_maps
from .folder import SPLITS, TURNED, Evidence, Folder, note_problems, read_bytes
from .likeness import find_copies, find_cut_videos

FORMATS = (coco, yolo, voc, labelme, class_maps, class_folders)
TASKS = ("detection", "segmentation", "classification")
EXPECTED = "\n  ".join([" Expected one of:", *(module.LAYOUT for module in FORMATS)])
_MOST_CUTS = 0.1  # neighbouring frames of a video in two splits, per image of the validation
_TEXTS = (".json", ".txt", ".xml", ".yaml", ".yml", ".data", ".names", ".labels", ".npy")  # of annotations
_EVERY = 5  # one image of so many is for validation


def prepare_data(root: str | Path, task: str = "", ignore: Sequence[int] = (), background: str = "auto") -> Dataset:
    """Read a folder with :func:`read`, and split its images if there is no validation.

    ``background`` is ``'on'`` or ``'off'`` for training images without an object; ``'auto'`` keeps them if they are at most as
    many as the others.
    """
    dataset = read(root, task, ignore)
    if not dataset.split("val"):
        dataset.facts.append(split(dataset))
    train = dataset.split("train")
    for name in ("val", "test"):
        samples = dataset.split(name)
        if repeated := find_copies(samples, train):
            text = f"{len(repeated)} of the {len(samples)} images of {name} are in train, too, or were saved again"
            where = dataset.root / samples[repeated[0]].path
            dataset.notes.append(f"warning: {where}: {text}; keep each in one split")
    cuts = find_cut_videos(dataset.samples)
    if len(cuts) > _MOST_CUTS * len(dataset.split("val")):
        first, second = (f"{frame.path} in {frame.split}" for frame in cuts[0])
        text = f"frames of one video are in several splits, such as {first} and {second}"
        dataset.notes.append(f"warning: {text}; split by video, or the validation measures what was memorised")
    empty = [sample for sample in train if not sample.objects] if dataset.task == "detection" else []
    if empty:
        keep = background == "on" or (background == "auto" and 2 * len(empty) <= len(train))
        what = "trained on as background; --background off" if keep else "left out; --background on"
        text = f"{len(empty)} of {len(train)} training images show no object and are {what} changes that"
        dataset.notes.append(f"background: {text}")
        if not keep:
            dataset.samples = [sample for sample in dataset.samples if sample.split != "train" or sample.objects]
    shown = {name: set(dataset.count(name)) for name in ("train", "val")}
    for name, classes in shown.items():
        if not classes:
            raise UserError(f"{root}: no image of {name} has an object that counts; annotate some, or remove {name}")
    if not shown["train"] & shown["val"]:
        raise UserError(f"{root}: no class of train occurs in val; each class needs images in both")
    if absent := [name for index, name in enumerate(dataset.classes) if index not in shown["train"]]:
        dataset.notes.append(f"warning: no training image shows {', '.join(absent)}, which the model cannot learn")
    return dataset


def read(root: str | Path, task: str = "", ignore: Sequence[int] = ()) -> Dataset:
    """Recognise the format of a folder and read it with its images; an empty ``task`` is the first of :data:`TASKS` in it.

    Raises:
        UserError: the folder holds no annotations or several formats, or more than a tenth of the entries cannot be used.
    """
    folder = Folder(root, ignore)
    proofs = {module: proof for module in FORMATS if (proof := module.recognises(folder))}
    for chosen in [task] if task else TASKS:
        usable = {m: p for m, p in proofs.items() if chosen in p.tasks and not p.lacks and (task or not p.doubt)}
        if usable := {m: p for m, p in usable.items() if p.tasks[0] == chosen} or (usable if task else {}):
            break
    else:
        raise UserError(_describe(folder, task, proofs))
    if len(usable) > 1:
        listed = "; ".join(f"{module.NAME}: {proof.why}" for module, proof in usable.items())
        raise UserError(f"{folder.root} holds annotations in several formats ({listed}); keep one of them")
    ((module, proof),) = usable.items()
    foreign = [(folder.root / path, "OpenCV cannot read this format; convert it to PNG") for path in folder.others]
    broken = [(folder.root / path, reason) for path, reason in folder.broken.items()]
    folder.notes += note_problems(foreign, len(folder.images) + len(foreign), "images")
    folder.notes += note_problems(broken, len(folder.documents) + len(broken), "JSON, XML and YAML files")
    dataset = module.read(folder, proof.content, chosen)
    if chosen == "segmentation" and dataset.task == "detection":
        draw_maps(dataset)
    if dataset.values is not None:  # class maps are written
        check_number_of_labels(dataset)
    kind = ("boxes", "outlines")[dataset.has_masks] if dataset.task == "detection" else dataset.task
    dataset.facts = [f"{module.NAME}, {kind}: {proof.why}", *filter(None, [folder.splits_from])]
    dataset.notes = folder.notes + dataset.notes
    seen = [folder.look(sample.path) for sample in dataset.samples]
    if levels := [each.levels for each in seen if each.levels]:
        span = f"{min(levels)} to {max(levels)}"
        dataset.facts.append(f"{len(levels)} images of 16 bits, of which the training sees {span} levels")
    kinds = Counter(note for each in seen for note in each.notes)
    if dataset.task == "classification":
        del kinds[TURNED]  # a class has no place
    dataset.notes += [f"{number} of {len(seen)} images: {note}" for note, number in kinds.items()]
    for stated, path in folder.moved[:1]:
        others = f"{len(folder.moved)} images lie in other places than stated"
        dataset.notes.append(f"{others}, the first: {stated} -> {path}")
    if others := [f"{m.NAME} ({p.lacks or p.why})" for m, p in proofs.items() if not (m is module or p.doubt)]:
        dataset.notes.append(f"not read, but found: {'; '.join(others)}; --task chooses")
    is_split = dataset.split("train") or dataset.split("val")  # a test alone leaves the others to be trained on
    if is_split and (left := dataset.split("")):
        dataset.samples = [sample for sample in dataset.samples if sample.split]
        first = folder.root / left[0].path
        dataset.notes.append(f"left out: {len(left)} images that are in no split, the first {first}")
    return dataset


def _describe(folder: Folder, task: str, proofs: dict[ModuleType, Evidence]) -> str:
    """Return what a folder holds that cannot be read, and why."""
    text = f"{folder.root} holds no annotations{f' for {task}' if task else ''} that can be read."
    for module, proof in proofs.items():
        if proof.lacks:
            text += f" It looks like {module.NAME}, but {proof.lacks}."
        elif proof.doubt:
            text += f" If each folder is a class, add --task classification; this is in doubt, because {proof.doubt}."
        elif task:
            text += f" It holds {module.NAME} ({proof.why}), for {' or '.join(proof.tasks)}."
    text += "".join(f" {path}: {reason}." for path, reason in [*folder.broken.items()][:1])
    suffixes = Counter(PurePosixPath(path).suffix.lower() or PurePosixPath(path).name for path in folder.paths)
    listed = ", ".join(f"{number} {suffix}" for suffix, number in suffixes.most_common(8))
    return f"{text} Its files: {listed or 'none'}.{'' if any(each.lacks for each in proofs.values()) else EXPECTED}"


def split(dataset: Dataset) -> str:
    """Assign a fifth of the images that are not test images to ``val``, the others to ``train``, and return how, in a sentence.

    Each class of class folders has the same share on both sides, and so have images with and without objects. Equal files and
    Roboflow's augmented copies ``NAME.rf.HASH.jpg`` of an image stay on one side.
    """
    by_key: dict[object, list[Sample]] = {}
    for sample in (sample for sample in dataset.samples if sample.split != "test"):
        original = re.sub(r"\.rf\.\w+\.\w+$", "", sample.path)
        group = next((by_key[key] for key in (sample.digest, original) if key in by_key), [])
        group.append(sample)
        by_key[sample.digest] = by_key[original] = group
    groups = list({id(group): group for group in by_key.values()}.values())
    if len(groups) < 2:
        raise UserError(f"{dataset.root} holds fewer than two different images; training and validation need one each")
    drawn = [groups[index] for index in np.random.default_rng(0).permutation(len(groups))]
    drawn.sort(key=lambda group: (group[0].label, bool(group[0].objects)))
    for number, group in enumerate(drawn):
        for sample in group:
            sample.split = "val" if number % _EVERY == 1 else "train"  # with two images, the second validates
    train, val = (len(dataset.split(name)) for name in ("train", "val"))
    return f"splits: {train} images for training and {val} for validation, drawn with seed 0"


def hash_files(root: str | Path) -> dict[str, str]:
    """Return a hash of each image and each file of annotations of a folder, by its path in the folder."""
    folder = Folder(root)
    paths = [*folder.images, *folder.files(*_TEXTS)]
    with ThreadPoolExecutor() as pool:
        contents = pool.map(lambda path: _hash_file(folder.root / path), paths)
        return dict(zip(paths, contents, strict=True))


def _hash_file(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def write_data(dataset: Dataset, folder: Path) -> None:
    """Write the annotations of each split, and ``data.json``, a summary. The images stay where they are.

    Images out of LabelMe's files, and class maps that a training cannot read as they are, are written below ``folder``.
    """
    for sample in dataset.samples:
        target = folder / "maps" / f"{sample.path}.png"
        if sample.path.endswith(".json"):
            image = folder / "images" / Path(sample.path).with_suffix(".png")
            write_file(image, read_bytes(dataset.root / sample.path))
            sample.path = str(image)
        if dataset.task == "segmentation" and (dataset.values is not None or not sample.seg_map):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not sample.seg_map:
                labels = draw_map(sample)
            else:
                values, _ = class_maps.load_values(dataset.root / sample.seg_map)
                labels = np.zeros(values.shape, np.uint8)
                for value, label in dataset.values.items():
                    labels[values == value] = label
            Image.fromarray(labels).save(target)
            sample.seg_map = str(target)
    facts: dict[str, Any] = {}
    for name in SPLITS:
        samples = dataset.split(name)
        if dataset.task == "detection":
            write_file(folder / f"{name}.json", json.dumps(_to_coco(samples, dataset.classes)))
        else:
            lines = (f"{s.path}\t{s.seg_map}" if s.seg_map else f"{s.path} {s.label}" for s in samples)
            write_file(folder / f"{name}.txt", "\n".join(lines))
        facts[name] = [sample.path for sample in samples]
    facts |= dict(task=dataset.task, summary=dataset.summary(), table=dataset.table())
    write_file(folder / "data.json", json.dumps(facts, indent=1))


def _to_coco(samples: list[Sample], classes: list[str]) -> dict[str, Any]:
    """Return the content of a COCO file; the categories are numbered from 1."""
    images, annotations = [], []
    for sample in samples:
        width, height = sample.size
        images.append({"id": len(images) + 1, "file_name": sample.path, "width": width, "height": height})
        for entry in sample.objects:
            ids = {"id": len(annotations) + 1, "image_id": len(images), "category_id": entry["category_id"] + 1}
            annotations.append({**entry, **ids})
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}
