"""Annotations of a folder in the forms that configs name: COCO files, lists, and class maps that a training can read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmlisa.checkpoints import write_file

from .dataset import SPLITS, Dataset, Sample
from .formats.class_maps import load_values
from .formats.objects import draw_map
from .images import read_bytes


def write_data(dataset: Dataset, folder: Path, **facts: Any) -> None:
    """Write the annotations of each split, and ``data.json`` with ``facts``. The images stay where they are.

    Images out of LabelMe's files, and class maps that a training cannot read as they are, are written below ``folder``.
    """
    for sample in dataset.samples:
        seg_map = folder / "maps" / f"{sample.path}.png"
        if sample.path.endswith(".json"):
            target = folder / "images" / Path(sample.path).with_suffix(".png")
            write_file(target, read_bytes(dataset.root / sample.path))
            sample.path = str(target)
        if dataset.task == "segmentation" and (dataset.values is not None or not sample.seg_map):
            seg_map.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(_relabel(dataset, sample) if sample.seg_map else draw_map(sample)).save(seg_map)
            sample.seg_map = str(seg_map)
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


def _relabel(dataset: Dataset, sample: Sample) -> np.ndarray:
    """Return the labels of a class map, ``[H, W]``, uint8."""
    values, _ = load_values(dataset.root / sample.seg_map)
    labels = np.zeros(values.shape, np.uint8)
    for value, label in dataset.values.items():
        labels[values == value] = label
    return labels
