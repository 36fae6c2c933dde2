"""Comparison of tiles with one pass over the whole image: accuracy and time of the same weights."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mmengine.config import Config

_NAMES = {"AP": "mAP", "AP50": "mAP_50", "small": "mAP_s", "medium": "mAP_m", "large": "mAP_l"}  # in CocoMetric


def compare(folder: Path, run: Callable[..., None]) -> dict[str, object]:
    """Test ``model.pth`` of the run in ``folder`` on tiles of the validation images, and in one pass at 640 and 1333 pixels.

    ``run`` runs a command of mmlisa. The limits on proposals hold for a tile, so one pass gets those of the tiles of its image.
    The result has the rows of a ``table``, the head first, and an ``advice``, a sentence.
    """
    val, plain, rows, best = folder / "data" / "val.json", Config.fromfile(folder / "plain.py"), [], []
    content, cfg, tests = json.loads(val.read_text()), plain.model.test_cfg, {f"tiles of {plain.side} pixels": []}
    limits = {f"rpn.{key}": value for key, value in cfg.rpn.items()} if "rpn" in cfg else cfg
    limits = {key: value for key, value in limits.items() if key.endswith(("nms_pre", "max_per_img"))}
    longest = max(side for image in content["images"] for side in (image["width"], image["height"]))
    for size in (size for size in (640, 1333) if size <= longest):
        more = [f"model.test_cfg.{key}={value * -(-(size**2) // plain.side**2)}" for key, value in limits.items()]
        tests[f"one pass at {size} pixels"] = [f"test_dataloader.dataset.pipeline.1.scale=({size},{size})", *more]
    areas = [entry["area"] for entry in content["annotations"] if not entry["iscrowd"]]
    counted = [1, 1, *np.histogram(areas, [0, 32**2, 96**2, np.inf])[0]]  # objects behind each of _NAMES
    for name, changes in tests.items():
        work, config = folder / "comparison" / name.replace(" ", "_"), "plain.py" if changes else "config.py"
        changes += [f"test_{part}.ann_file={val}" for part in ("dataloader.dataset", "evaluator")]
        words = ["--cfg-options", *changes, f"test_evaluator.outfile_prefix={work / 'predictions'}"]
        try:
            run("test", folder / config, folder / "model.pth", "--work-dir", work, *words, log=work / "log.txt")
        except ChildProcessError:
            rows.append([name, *["-"] * len(_NAMES), "failed, perhaps for memory"])
            continue
        metrics = json.loads(max(work.glob("*/[0-9]*.json")).read_text())
        values = [metrics.get(f"coco/bbox_{key}", 0.0) for key in _NAMES.values()]  # without detections, there are none
        shown = (f"{value:.3f}" if number else "-" for value, number in zip(values, counted, strict=True))
        rows.append([name, *shown, f"{metrics['time']:.2f}"])
        best.append((values[0], metrics["time"], name))
    advice = f"{len(content['images'])} validation images are too few to recommend one."
    if best and len(content["images"]) >= 5:
        ap, time, name = min((each for each in best if each[0] >= max(best)[0] - 0.01), key=lambda each: each[1])
        advice = f"Recommended: {name}, the fastest within 0.01 AP of the best: AP {ap:.3f} in {time:.2f} s per image."
    return {"table": [["test", *_NAMES, "s per image"], *rows], "advice": advice}
