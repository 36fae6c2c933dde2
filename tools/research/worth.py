"""Measures what trained features are worth with few images, for docs/foundation.md.

``python tools/research/worth.py WEIGHTS --out FILE.json``: trainings of ``mmlisa fit`` on 20, 50 and 200 demo images, each of
about the same CPU time, and the AP on the same 40 others. A row that the file has already is not measured again.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

from research.benchmark import describe_commit

SIDE, BATCH, VALIDATION = 224, 4, 40
# What `mmlisa fit` gets besides data, side and batch; WEIGHTS stands for the file.
MODELS: dict[str, list[str]] = {
    "DINOv2-S, frozen": ["--model", "dinov2-s", "--weights", "WEIGHTS", "--freeze"],
    "DINOv2-S, layer decay": ["--model", "dinov2-s", "--weights", "WEIGHTS"],
    "DINOv2-S, random weights": ["--model", "dinov2-s", "--weights", ""],
    "HyLiSANet-S (demo), random weights": ["--model", "hylisanet"],
    "FLatten-Swin-T, random weights": ["--model", "flatten-swin-t", "--weights", ""],
}


def run(*words: object) -> float:
    """Run a command of mmlisa on one thread, and return its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "mmlisa", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def train(root: Path, options: Sequence[str], images: int, steps: int, seed: int) -> dict[str, Any]:
    """Train for about ``steps`` steps, validate once, and return CPU seconds, steps and metrics."""
    data, work = root / f"data_{images}", root / "run"
    if not data.exists():
        run("demo-data", "--root", data, "--train-images", images, "--val-images", VALIDATION)
    epochs = max(1, round(steps * BATCH / images))
    shared = ["--task", "detection", "--size", SIDE, "--batch", BATCH, "--epochs", epochs]
    run("fit", data, *options, *shared, "--work-dir", work, "--dry-run", "--restart")
    steps = epochs * images // BATCH
    changes = [f"randomness.seed={seed}", f"train_cfg.val_interval={steps}"]
    seconds = run("train", work / "config.py", "--work-dir", work / "train", "--cfg-options", *changes)
    scalars = max((work / "train").glob("2*/vis_data/scalars.json"))
    metrics = json.loads(scalars.read_text().splitlines()[-1])
    scalars.unlink()
    found = {key: metrics[f"coco/{key}"] for key in ("bbox_mAP", "bbox_mAP_50", "segm_mAP", "segm_mAP_50")}
    return dict(steps=steps, seconds=seconds, **found)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="file of DINOv2's ViT-S/14")
    parser.add_argument("--seconds", type=float, default=150, help="CPU time of a training (default: %(default)s)")
    parser.add_argument("--images", type=int, nargs="+", default=(20, 50, 200))
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--root", type=Path, default=Path("work_dirs/worth"), help="of data and trainings")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    content = dict(commit=describe_commit(), machine=f"CPU, 1 thread, PyTorch {version('torch')}", pace={}, rows=[])
    if args.out.exists():
        content = json.loads(args.out.read_text())
    options = {name: [str(args.weights) if w == "WEIGHTS" else w for w in MODELS[name]] for name in args.models}
    for name in args.models:
        if name not in content["pace"]:  # seconds of a step, and of all that is not one
            short, long = (train(args.root, options[name], 20, steps, 0) for steps in (15, 30))
            pace = (long["seconds"] - short["seconds"]) / (long["steps"] - short["steps"])
            content["pace"][name] = [pace, short["seconds"] - pace * short["steps"]]
            args.out.write_text(json.dumps(content, indent=1) + "\n")
    for seed in args.seeds:
        for images in args.images:
            for name in args.models:
                key = dict(name=name, images=images, seed=seed)
                if any(key.items() <= row.items() for row in content["rows"]):
                    continue
                steps = round(args.seconds / content["pace"][name][0])
                row = key | train(args.root, options[name], images, steps, seed)
                content["rows"].append(row)
                args.out.write_text(json.dumps(content, indent=1) + "\n")
                print(row, flush=True)
    print(to_markdown(content["rows"]))


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table: a line per model, box AP50 / mask AP50 for each number of images, and the range over the seeds."""
    sizes = sorted({row["images"] for row in rows})
    lines = [
        f"| backbone | steps | {' | '.join(f'{size} images' for size in sizes)} |",
        "|---" * (2 + len(sizes)) + "|",
    ]
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        cells = []
        for size in sizes:
            values = [[row[key] for row in own if row["images"] == size] for key in ("bbox_mAP_50", "segm_mAP_50")]
            texts = [_text(each) for each in values]
            cells.append(" / ".join(texts))
        lines.append(f"| {name} | {round(mean(row['steps'] for row in own))} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _text(values: Sequence[float]) -> str:
    """Return the mean of some runs, and their range if there are several."""
    if not values:
        return "-"
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}"


if __name__ == "__main__":
    main()
