"""Everything wrong with a config's data, found before a training meets it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from tqdm import tqdm

from mmlisa.engine.building import guard_process

from .transforms import LoadImageFromFile


def find_all(cfg: Config, split: str) -> Iterator[str]:
    """Reads every annotation and every image of a config's ``train``, ``val`` or ``test`` data.

    Yields:
        A line per thing that is wrong: the file, the id where there is one, and what it is.

    Raises:
        FileNotFoundError, ValueError: there is no data set to look into.
    """
    init_default_scope(cfg.get("default_scope", "mmengine"))
    dataset_cfg = cfg[f"{split}_dataloader"].dataset
    while "dataset" in dataset_cfg:
        dataset_cfg = dataset_cfg.dataset
    options: dict[str, Any] = {"serialize_data": False}
    if str(dataset_cfg.type).endswith("CocoDataset"):
        options["type"] = (
            "mmlisa.CocoDataset" if dataset_cfg.type in ("CocoDataset", "mmdet.CocoDataset") else dataset_cfg.type
        )
        options["on_bad_annotation"] = "skip"
    guard_process(cfg)
    dataset = DATASETS.build({**dataset_cfg, **options})
    file = getattr(dataset, "ann_file", "")
    yield from (f"{file}: {problem}" for problem in getattr(dataset, "problems", ()))
    num_classes = len(dataset.metainfo.get("classes") or ())
    load = LoadImageFromFile()
    for index in tqdm(range(len(dataset)), "images", leave=False, disable=None):
        info = dataset.get_data_info(index)
        yield from _wrong_with(info, load, num_classes, dataset.metainfo)


def _wrong_with(info: Mapping[str, Any], load: LoadImageFromFile, num_classes: int, meta: Mapping) -> Iterator[str]:
    path = info["img_path"]
    if not Path(path).is_file():
        yield f"{path}: there is no such image"
        return
    try:
        height, width = load.transform({"img_path": path})["img_shape"]
    except ValueError as error:
        yield str(error).split(". LoadImageFromFile")[0]
        return
    stated = (info.get("height", height), info.get("width", width))
    if stated != (height, width):
        yield f"{path}: the image is {width} x {height} pixels, its annotation says {stated[1]} x {stated[0]}"
    labels = info.get("seg_map_path")
    if not labels:
        return
    if not Path(labels).is_file():
        yield f"{labels}: there is no such class map, for {path}"
        return
    try:
        with Image.open(labels) as image:
            values = np.asarray(image)
    except OSError as error:
        yield f"{labels}: {error}"
        return
    if values.shape[:2] != (height, width):
        yield f"{labels}: the class map is {values.shape[1]} x {values.shape[0]} pixels, the image {width} x {height}"
    highest = num_classes + bool(info.get("reduce_zero_label")) - 1
    wrong = sorted(set(np.unique(values).tolist()) - {255, *range(highest + 1)})
    if num_classes and wrong and not meta.get("label_map"):
        yield f"{labels}: the classes {wrong[:8]} do not exist, the highest is {highest}"
