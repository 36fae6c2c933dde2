"""Whole photographs against tiles: accuracy, time and memory of narrow detectors on tree crowns.

``python -m research.tiles FOLDER`` trains the four operators in turn and measures them. What is in FOLDER is not repeated, and an
interrupted training continues.
"""

import json
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmlisa.deploy.inference import Predictor, TiledPredictor, as_loaded, read_sample
from mmlisa.memory import peak_extra_bytes
from mmlisa.training.config import load_config, set_show_dir
from mmlisa.training.runner import build_runner, train

from .comparison.jobs import delta
from .comparison.suites import SUITES, TASKS
from .environment import describe_environment
from .packages import data_folder
from .tree_crowns import Photograph, make_tree_crowns, read_photographs

OPERATORS = ("softmax", "focused linear", "LiSA", "interactive")
ITERATIONS, CROP = 1200, 128  # of a training; side of its crops in pixels
# Sides in pixels (None: the whole photograph), and the most proposals and detections in one input, at least three times its
# crowns. With as many for a tile as for a photograph, the detector's head would take most of the time of tiles.
TILES = {None: 1000, 512: 250, 256: 100, 128: 50}
OVERLAP = 0.25
THRESHOLD = 0.05  # of the scores
MOST = 1000  # detections that are evaluated per photograph; one has 279 crowns


def build_config(operator: str, work_dir: Path) -> Config:
    """A training on crops at the photographs' own resolution, and a test at the same resolution."""
    comparison = replace(SUITES["default"]["tree_crowns"], iterations=ITERATIONS, size=CROP)
    cfg = load_config(TASKS[comparison.task].config, work_dir=str(work_dir))
    cfg.merge_from_dict(deepcopy(delta(comparison, operator, 0)))  # merging takes it apart
    load, annotations, _, *rest = cfg.train_dataloader.dataset.pipeline
    cfg.train_dataloader.dataset.pipeline = [load, annotations, dict(type="RandomCrop", crop_size=(CROP, CROP)), *rest]
    cfg.test_dataloader.dataset.pipeline[1] = dict(type="Resize", scale_factor=1.0, keep_ratio=True)
    cfg.default_hooks.checkpoint = dict(type="CheckpointHook", by_epoch=False, interval=80, max_keep_ckpts=1)
    cfg.resume = True
    set_show_dir(cfg, None)
    return cfg


def train_once(operator: str, folder: Path) -> tuple[Config, Path]:
    """The config and the checkpoint of a training, from ``folder`` if they are there."""
    cfg = build_config(operator, folder)
    checkpoint = folder / f"iter_{ITERATIONS}.pth"
    if not checkpoint.is_file():
        train(build_runner(cfg, 0.5, verbose=False))
    return cfg, checkpoint


def measure(cfg: Config, checkpoint: Path, tile: int | None, photographs: list[Photograph]) -> dict[str, float]:
    """AP50 over all photographs, seconds of the largest, and peak bytes of it or of one of its tiles."""
    most = TILES[tile]
    cfg.model.test_cfg.rpn.update(nms_pre=2 * most, max_per_img=most)
    cfg.model.test_cfg.rcnn.max_per_img = most
    whole = Predictor(cfg, str(checkpoint), score_threshold=THRESHOLD, device="cpu")
    predictor = whole if tile is None else TiledPredictor(whole, tile, OVERLAP)
    found = [read_sample(predictor.predict(as_loaded(photograph.image))[0]) for photograph in photographs]
    largest = photographs[0].image
    start = perf_counter()
    predictor.predict(as_loaded(largest))
    seconds = perf_counter() - start
    return dict(
        ap50=average_precision(photographs, found),
        detections=sum(len(one.boxes) for one in found),
        seconds=seconds,
        # Tiles are predicted one after another; the profiler's record of all of them would not fit into memory.
        peak_bytes=peak_extra_bytes(lambda: whole.predict(as_loaded(largest[:tile, :tile]))),
    )


def average_precision(photographs: list[Photograph], found: list[Any]) -> float:
    """AP at an overlap of 0.5 with up to :data:`MOST` detections per photograph, by pycocotools."""
    images, annotations, results = [], [], []
    for index, (photograph, prediction) in enumerate(zip(photographs, found, strict=True), 1):
        images.append(dict(id=index))
        for box in _as_coco(photograph.boxes):
            entry = dict(
                id=len(annotations) + 1, image_id=index, category_id=1, iscrowd=0, bbox=box, area=box[2] * box[3]
            )
            annotations.append(entry)
        for box, score in zip(_as_coco(prediction.boxes), prediction.scores.tolist(), strict=True):
            results.append(dict(image_id=index, category_id=1, bbox=box, score=score))
    if not results:
        return 0.0
    truth = COCO()
    truth.dataset = dict(images=images, annotations=annotations, categories=[dict(id=1, name="tree")])
    truth.createIndex()
    evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
    evaluation.params.maxDets = [1, 10, MOST]
    evaluation.params.iouThrs = np.array([0.5])
    evaluation.evaluate()
    evaluation.accumulate()
    return float(evaluation.eval["precision"][0, :, 0, 0, -1].mean())


def _as_coco(boxes: np.ndarray) -> list[list[float]]:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()


def to_markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the page."""
    lines = ["| operator | input | AP50, % | detections | s | peak MB |", "|---|---|---|---|---|---|"]
    for row in rows:
        side = "whole" if row["tile"] is None else f"tiles of {row['tile']}"
        lines.append(
            f"| {row['operator']} | {side} | {100 * row['ap50']:.1f} | {row['detections']} | {row['seconds']:.2f} | "
            f"{row['peak_bytes'] / 1e6:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main(root: Path) -> None:
    torch.set_num_threads(1)
    make_tree_crowns("data/tree_crowns")
    photographs = read_photographs(data_folder("deepforest", "deepforest"))[1:]  # the largest is for training
    file = root / "tiles.json"
    rows = json.loads(file.read_text())["rows"] if file.is_file() else []
    for operator in OPERATORS:
        cfg, checkpoint = train_once(operator, root / operator.replace(" ", "_"))
        for tile in TILES:
            if any((row["operator"], row["tile"]) == (operator, tile) for row in rows):
                continue
            rows.append(dict(operator=operator, tile=tile, **measure(cfg, checkpoint, tile, photographs)))
            file.write_text(json.dumps(dict(**describe_environment(), rows=rows), indent=1) + "\n")
            print(to_markdown(rows[-1:]), flush=True)
    print(to_markdown(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
