"""Trainings by the tools, as a user starts them, and what their logs say."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
