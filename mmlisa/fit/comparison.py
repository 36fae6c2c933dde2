"""Comparison of tiles with one pass over the whole image: accuracy, time and memory of the same weights."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mmengine.config import Config

_SIZES = (640, 1024, 1333, 2000)  # longer sides of the images in one pass
_LIMITS = ("nms_pre", "max_per_img")  # on proposals
_EQUAL = 0.01  # AP; the faster of two that differ by less is recommended
_NAMES = {"AP": "mAP", "AP50": "mAP_50", "small": "mAP_s", "medium": "mAP_m", "large": "mAP_l"}  # in CocoMetric
_HEAD = ["test", *_NAMES, "s per image", "memory, GiB"]
_OUT_OF_MEMORY = ("can't allocate memory", "MemoryError", "out of memory", "bad_alloc", "Insufficient memory")
_GIB = 2**30


def compare(folder: Path, memory: float | None = None) -> dict[str, Any]:
    """Test ``model.pth`` on the validation images, on tiles and in one pass at several sizes, each in a process of its own.

    Sizes above that of the largest image are left out, and so are those after the first that needs more than ``memory``.
    The limits on proposals hold for each tile, so one pass gets those of as many tiles as cover its image.

    Args:
        folder: of a run with tiles; gets the logs in ``comparison/``.
        memory: limit of a process in GiB; three quarters of the machine's if None.

    Returns:
        ``table``, rows of text with the head first, and ``advice``, a sentence.

    Raises:
        ChildProcessError: a test failed for another reason than memory; names its log.
    """
    memory = memory or 0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    images = json.loads((folder / "data" / "val.json").read_text())["images"]
    longest = max(max(image["width"], image["height"]) for image in images)
    plain = Config.fromfile(folder / "plain.py")
    side, test_cfg = plain.side, plain.model.test_cfg
    limits = {f"rpn.{key}": value for key, value in test_cfg.rpn.items()} if "rpn" in test_cfg else test_cfg
    tests = {f"tiles of {side} pixels": ("config.py", [])}
    for size in (size for size in _SIZES if size <= longest):
        options, tiles = [f"test_dataloader.dataset.pipeline.1.scale=({size},{size})"], -(-(size**2) // side**2)
        options += [f"model.test_cfg.{key}={n * tiles}" for key, n in limits.items() if key.endswith(_LIMITS)]
        tests[f"one pass at {size} pixels"] = ("plain.py", options)
    rows, results = [], {}
    for name, (config, options) in tests.items():
        print(f"comparison: {name}", flush=True)
        found = _test(folder, config, options, name.replace(" ", "_"), memory)
        if found is None:
            rows.append([name, *["-"] * 6, f"not within {memory:.1f}"])
            if config == "plain.py":
                break
            continue
        results[name] = found
        shown = ["-" if found[key] < 0 else f"{found[key]:.3f}" for key in _NAMES]  # -1: no object has the size
        rows.append([name, *shown, f"{found['time']:.2f}", f"{found['memory']:.1f}"])
    return {"table": [_HEAD, *rows], "advice": recommend(results)}


def recommend(results: dict[str, dict[str, float]]) -> str:
    """Return a sentence that recommends the fastest of the tests whose AP is at most 0.01 below the best.

    Args:
        results: by the name of a test, its ``AP`` and ``time``, seconds per image.
    """
    if not results:
        return "No test fits into the memory; give more with --memory."
    best = max(results, key=lambda name: results[name]["AP"])
    least = results[best]["AP"] - _EQUAL
    chosen = min((name for name in results if results[name]["AP"] >= least), key=lambda name: results[name]["time"])
    result = results[chosen]
    why = "the best AP" if chosen == best else f"the fastest within {_EQUAL} AP of the best ({best})"
    return f"Recommended: {chosen}, {why}: AP {result['AP']:.3f} in {result['time']:.2f} s per image."


def _test(folder: Path, config: str, options: list[str], name: str, memory: float) -> dict[str, float] | None:
    """Return AP by size of objects, ``time`` (s per image) and ``memory`` (GiB) of a test; None beyond ``memory``."""
    work, val = folder / "comparison" / name, folder / "data" / "val.json"
    work.mkdir(parents=True, exist_ok=True)
    options = [
        *options,
        f"test_dataloader.dataset.ann_file={val}",
        f"test_evaluator.ann_file={val}",
        f"test_evaluator.outfile_prefix={work / 'predictions'}",
        "test_dataloader.num_workers=0",
        "test_dataloader.persistent_workers=False",
    ]
    command = ["test", folder / config, folder / "model.pth", "--work-dir", work, "--cfg-options", *options]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory * _GIB),) * 2)

    log = work / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "mmlisa", *map(str, command)], stdout=file, stderr=file, preexec_fn=limit
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        text = log.read_text(errors="replace")
        # The kernel kills a process beyond the limit of its container.
        if os.WTERMSIG(status) == signal.SIGKILL or any(words in text for words in _OUT_OF_MEMORY):
            return None
        raise ChildProcessError(f"the comparison {name} failed; see {log}")
    results = json.loads(max(work.glob("*/*.json")).read_text())
    found = {key: results.get(f"coco/bbox_{name}", 0.0) for key, name in _NAMES.items()}
    memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / _GIB
    return {**found, "time": results["time"], "memory": memory}
