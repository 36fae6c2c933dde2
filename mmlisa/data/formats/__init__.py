"""The formats of annotations. Each is a module with ``NAME``, ``TASKS``, ``LAYOUT`` (a line that shows its files to the user),
``recognises(folder)``, the evidence that a folder is of this format, and ``read(folder)``, its data set."""

from pathlib import Path

from ..folder import Dataset, Folder
from . import class_folders, class_maps, coco, labelme, voc, yolo

FORMATS = (coco, yolo, voc, labelme, class_maps, class_folders)
TASKS = ("detection", "segmentation", "classification")
EXPECTED = "\n  ".join(["Expected one of:", *(module.LAYOUT for module in FORMATS)]) + (
    "\nWithout the splits train, val and test, a fifth of the images is drawn for validation."
)


def read(root: str | Path, task: str = "") -> Dataset:
    """Recognise the format of a folder and read it.

    Args:
        root: the folder.
        task: one of :data:`TASKS`; if empty, the first of them that the folder holds.

    Raises:
        ValueError: the folder holds no annotations or several formats, or more than a tenth of the entries cannot be used.
        FileNotFoundError: the folder does not exist.
    """
    folder, found = Folder(root), {}
    for each in [task] if task else TASKS:
        found = {module: proof for module in FORMATS if each in module.TASKS and (proof := module.recognises(folder))}
        if found:
            break
    else:
        what = f"annotations for {task}" if task else "annotations"
        raise ValueError(f"{root} holds {len(folder.images)} images, but no {what} in a known place. {EXPECTED}")
    if len(found) > 1:
        listed = "; ".join(f"{module.NAME}: {next(iter(proof.files))}" for module, proof in found.items())
        raise ValueError(f"{folder.root} holds annotations in several formats ({listed}); keep one of them")
    dataset = next(iter(found)).read(folder)
    unassigned = dataset.split("")
    if unassigned and (dataset.split("train") or dataset.split("val")):  # images beside a test alone are trained on
        dataset.samples = [sample for sample in dataset.samples if sample.split]
        dataset.notes.append(
            f"{folder.root / unassigned[0].path}: this image is in no split; all {len(unassigned)} such images are left out"
        )
    return dataset
