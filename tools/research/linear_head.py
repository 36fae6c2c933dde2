"""Measures a linear head on frozen tokens, for docs/takeover.md: semantic segmentation of the demo's scenes.

``python tools/research/linear_head.py WEIGHTS --side 1022``: the last tokens of DINOv2's ViT-S/14, with its softmax, with the
operators and students of ``takeover.py``, and with random weights. Each network gets heads of its own, one per seed.
"""

import argparse
import json
from collections.abc import Sequence
from statistics import mean
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.datasets.demo import CLASSES, make_scenes
from mmlisa.models.backbones import DINOv2
from research.benchmark import describe_commit, describe_processor
from research.takeover import BLOCKS, MEAN, STD, WithClassToken, build_networks, build_parser

SPLITS = {"train": 80, "val": 40}
STEPS, BATCH, RATE = 600, 8, 2e-3


def read_scenes(split: str, count: int, side: int) -> tuple[list[Tensor], Tensor]:
    """Return normalised pictures ``[1, 3, side, side]``, and their class maps ``[count, side, side]``."""
    images, maps = [], []
    for scene in make_scenes(split, count, side=side):
        values = cv2.resize(scene.image, (side, side), interpolation=cv2.INTER_AREA) / np.float32(255)
        images.append(torch.from_numpy((values - MEAN) / STD).float().permute(2, 0, 1)[None])
        maps.append(cv2.resize(scene.class_map, (side, side), interpolation=cv2.INTER_NEAREST))
    return images, torch.from_numpy(np.stack(maps)).long()


@torch.no_grad()
def tokens_of(network: nn.Module, images: Sequence[Tensor]) -> Tensor:
    """Return the last map of each image, ``[n, C, h, w]``."""
    return torch.cat([network(image)[len(BLOCKS) - 1] for image in images])


def train_head(tokens: Tensor, maps: Tensor, seed: int) -> nn.Module:
    """Return a normalisation and a linear layer, trained at the resolution of the tokens."""
    torch.manual_seed(seed)
    targets = F.interpolate(maps[:, None].float(), tokens.shape[2:], mode="nearest-exact")[:, 0].long()
    head = nn.Sequential(nn.BatchNorm2d(tokens.shape[1]), nn.Conv2d(tokens.shape[1], len(CLASSES) + 1, 1))
    optimizer = torch.optim.AdamW(head.parameters(), RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        chosen = torch.randint(len(tokens), (BATCH,))
        loss = F.cross_entropy(head(tokens[chosen]), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return head.eval()


@torch.no_grad()
def mean_iou(head: nn.Module, tokens: Tensor, maps: Tensor) -> float:
    """Return the mean over the classes of intersection over union, in pixels."""
    classes = len(CLASSES) + 1
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    for each, target in zip(tokens, maps, strict=True):
        logits = F.interpolate(head(each[None]), target.shape, mode="bilinear")
        pairs = target.flatten() * classes + logits.argmax(1).flatten()
        confusion += torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    return float((confusion.diag() / (confusion.sum(0) + confusion.sum(1) - confusion.diag())).mean())


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = build_parser(__doc__)
    parser.add_argument("--side", type=int, default=1022, help="of the scenes, in pixels (default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    networks: dict[str, nn.Module] = dict(build_networks(args.weights, args.attentions, args.students))
    torch.manual_seed(0)
    networks["random weights"] = WithClassToken(DINOv2("small", out_indices=BLOCKS)).eval()
    (images, maps), (val_images, val_maps) = (read_scenes(*split, args.side) for split in SPLITS.items())
    rows: list[dict[str, Any]] = []
    for name, network in networks.items():
        tokens, val_tokens = tokens_of(network, images), tokens_of(network, val_images)
        found = [mean_iou(train_head(tokens, maps, seed), val_tokens, val_maps) for seed in args.seeds]
        rows.append(dict(side=args.side, name=name, miou=found))
        print(f"{args.side} {name}: {mean(found):.3f} ({min(found):.3f} to {max(found):.3f})", flush=True)
        if args.out:
            machine = f"{describe_processor()}, PyTorch {torch.__version__}"
            content = dict(commit=describe_commit(), machine=machine, rows=rows)
            args.out.write_text(json.dumps(content, indent=1) + "\n")


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the rows."""
    lines = ["| pixels | attention | mIoU, three heads (range) |", "|---|---|---|"]
    for row in rows:
        values = f"{mean(row['miou']):.3f} ({min(row['miou']):.3f} to {max(row['miou']):.3f})"
        lines.append(f"| {row['side']} | {row['name']} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
