"""Comparison of tiles with one pass over the whole image: accuracy and time of the same weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmengine.config import Config

_SIZES = (640, 1333)  # longer sides of the images in one pass
_LIMITS = ("nms_pre", "max_per_img")  # on proposals
_EQUAL = 0.01  # AP; the faster of two that differ by less is recommended
FEWEST_IMAGES = 5  # with fewer, nothing is recommended
_NAMES = {"AP": "mAP", "AP50": "mAP_50", "small": "mAP_s", "medium": "mAP_m", "large": "mAP_l"}  # in CocoMetric


def compare(folder: Path, run: Callable[..., None]) -> dict[str, Any]:
    """Test ``model.pth`` on the validation images, on tiles and in one pass at sizes up to that of the largest image.

    The limits on proposals hold for each tile, so one pass gets those of as many tiles as cover its image.

    Args:
        folder: of a run with tiles; gets the logs in ``comparison/``.
        run: runs a command of mmlisa, with its output in the file ``log``.

    Returns:
        ``table``, rows of text with the head first, and ``advice``, a sentence.

    Raises:
        ChildProcessError: the test on tiles failed.
    """
    val = folder / "data" / "val.json"
    sides = [max(image["width"], image["height"]) for image in json.loads(val.read_text())["images"]]
    plain = Config.fromfile(folder / "plain.py")
    side, test_cfg = plain.side, plain.model.test_cfg
    limits = {f"rpn.{key}": value for key, value in test_cfg.rpn.items()} if "rpn" in test_cfg else test_cfg
    tests = {f"tiles of {side} pixels": ("config.py", [])}
    for size in (size for size in _SIZES if size <= max(sides)):
        options, tiles = [f"test_dataloader.dataset.pipeline.1.scale=({size},{size})"], -(-(size**2) // side**2)
        options += [f"model.test_cfg.{key}={n * tiles}" for key, n in limits.items() if key.endswith(_LIMITS)]
        tests[f"one pass at {size} pixels"] = ("plain.py", options)
    rows, results = [["test", *_NAMES, "s per image"]], {}
    for name, (config, options) in tests.items():
        print(f"comparison: {name}", flush=True)
        work = folder / "comparison" / name.replace(" ", "_")
        files = {"test_dataloader.dataset.ann_file": val, "test_evaluator.ann_file": val}
        files["test_evaluator.outfile_prefix"] = work / "predictions"
        options = [*options, *(f"{key}={path}" for key, path in files.items())]
        words = [folder / config, folder / "model.pth", "--work-dir", work, "--cfg-options", *options]
        try:
            run("test", *words, log=work / "log.txt")
        except ChildProcessError:
            if config == "config.py":
                raise
            rows.append([name, *["-"] * len(_NAMES), "failed, perhaps for memory"])
            continue
        found = json.loads(max(work.glob("*/*.json")).read_text())
        results[name] = found = {key: found.get(f"coco/bbox_{each}", 0.0) for key, each in _NAMES.items()} | {
            "time": found["time"]
        }
        shown = ["-" if found[key] < 0 else f"{found[key]:.3f}" for key in _NAMES]  # -1: no object has the size
        rows.append([name, *shown, f"{found['time']:.2f}"])
    return {"table": rows, "advice": recommend(results, len(sides))}


def recommend(results: dict[str, dict[str, float]], number: int) -> str:
    """Return a sentence that recommends the fastest of the tests whose AP is at most 0.01 below the best.

    Args:
        results: by the name of a test, its ``AP`` and ``time``, seconds per image.
        number: of images; below :data:`FEWEST_IMAGES`, nothing is recommended.
    """
    if number < FEWEST_IMAGES:
        return f"{number} validation images are too few to recommend one."
    best = max(results, key=lambda name: results[name]["AP"])
    least = results[best]["AP"] - _EQUAL
    chosen = min((name for name in results if results[name]["AP"] >= least), key=lambda name: results[name]["time"])
    why = "the best AP" if chosen == best else f"the fastest within {_EQUAL} AP of the best ({best})"
    return f"Recommended: {chosen}, {why}: AP {results[chosen]['AP']:.3f} in {results[chosen]['time']:.2f} s per image."
