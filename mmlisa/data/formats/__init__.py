"""The formats of annotations.

Each is a module with ``NAME``, ``LAYOUT`` (a line that shows its files to the user), ``recognises(folder)``, the evidence that a
folder is of this format or None, and ``read(folder, content, task)``, the data set of the content of this evidence.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType

from mmlisa.errors import UserError

from ..dataset import Dataset, note_problems
from ..folder import Evidence, Folder
from . import class_folders, class_maps, coco, labelme, voc, yolo
from .objects import draw_maps

FORMATS = (coco, yolo, voc, labelme, class_maps, class_folders)
TASKS = ("detection", "segmentation", "classification")
EXPECTED = "\n  ".join([" Expected one of:", *(module.LAYOUT for module in FORMATS)])


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
    folder.look_at(folder.images)
    dataset = module.read(folder, proof.content, chosen)
    if chosen == "segmentation" and dataset.task == "detection":
        draw_maps(dataset)
    kind = ("boxes", "outlines")[dataset.has_masks] if dataset.task == "detection" else dataset.task
    dataset.facts = [f"{module.NAME}, {kind}: {proof.why}", *filter(None, [folder.splits_from])]
    dataset.notes = folder.notes + dataset.notes
    seen = [folder.look(sample.path) for sample in dataset.samples]
    if levels := [each.levels for each in seen if each.levels]:
        span = f"{min(levels)} to {max(levels)}"
        dataset.facts.append(f"{len(levels)} images of 16 bits, of which the training sees {span} levels")
    kinds = Counter(note for each in seen for note in each.notes)
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
