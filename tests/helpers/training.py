"""Trainings by the tools, as a user starts them, and what their logs say."""

import json
import subprocess
import sys
from pathlib import Path

from mmlisa import config_path

ROOT = Path(__file__).parents[2]
EPOCH = ["train_cfg.max_epochs=1"]
# A few images and iterations of each demo config; a checkpoint every second iteration.
SHORT = [
    "train_cfg.max_iters=6",
    "train_cfg.val_interval=6",
    "default_hooks.checkpoint.interval=2",
    "default_hooks.logger.interval=1",
    "log_processor.window_size=1",
    "train_dataloader.dataset.indices=16",
    "val_dataloader.dataset.indices=6",
    "test_dataloader.dataset.indices=6",
]


def train(config: str, data: Path, work_dir: Path, *options: str) -> subprocess.CompletedProcess:
    batch = 2 if data.name == "ade" else 1
    command = [sys.executable, "tools/train.py", config_path(config), "--work-dir", str(work_dir), "--cfg-options"]
    command += [f"{split}_dataloader.dataset.data_root={data}/" for split in ("train", "val", "test")]
    command += [f"train_dataloader.batch_size={batch}", "val_dataloader.dataset.indices=1"]
    command += [f"{split}_dataloader.num_workers=0" for split in ("train", "val")]
    command += [f"{split}_dataloader.persistent_workers=False" for split in ("train", "val")]
    if data.name == "coco":
        annotations = f"{data}/annotations/instances_val2017.json"
        command += [f"{split}_evaluator.ann_file={annotations}" for split in ("val", "test")]
    command += ["default_hooks.logger.interval=1", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


def history(work_dir: Path) -> tuple[dict[int, dict], dict]:
    """Losses per iteration and the last validation's metrics, over all logs of a work dir; later logs win."""
    losses, metrics = {}, {}
    for path in sorted(work_dir.glob("*/vis_data/*.json")):
        if path.name in ("config.json", "scalars.json"):
            continue
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "loss" in entry:
                losses[entry["step"]] = {k: v for k, v in entry.items() if "loss" in k or k in ("lr", "grad_norm")}
            else:
                metrics = scores(entry)
    return losses, metrics


def scores(entry: dict) -> dict:
    return {k: v for k, v in entry.items() if any(part in k for part in ("mAP", "mIoU", "Acc", "accuracy"))}
