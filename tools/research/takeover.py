"""Measures how well attention of linear cost replaces a trained softmax without training, for docs/takeover.md.

``python tools/research/takeover.py WEIGHTS FOLDER``: DINOv2's ViT-S/14 with its weights, on the central square of photographs,
with operators of :data:`ATTENTIONS` and with students of ``mmlisa adapt``. Prints tables, and writes them with ``--out``. "One
pixel" is softmax itself on the picture moved by one pixel: how settled its features are.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.logging import MMLogger
from PIL import Image
from torch import Tensor, nn

import mmlisa
from mmlisa.checkpoints import read_checkpoint
from mmlisa.models.backbones import DINOv2
from mmlisa.models.swap import agreement
from research.benchmark import describe_commit, describe_processor, peak_extra_bytes

SIDES = (518, 1022, 1400)
BLOCKS = (7, 11)  # the eighth block, and the last
ATTENTIONS: dict[str, dict[str, Any]] = {
    "cells 24, window 16": dict(type="CellAttention"),
    "cells 20, window 16": dict(type="CellAttention", cells=20),
    "cells 16, window 8": dict(type="CellAttention", window=8, cells=16),
    "cells 24 alone": dict(type="CellAttention", window=0),
    "windows of 16 alone": dict(type="CellAttention", cells=0),
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class WithClassToken(nn.Module):
    """A DINOv2 that returns the maps of :data:`BLOCKS`, and the class token of the last."""

    def __init__(self, backbone: DINOv2) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        tokens = []
        with self.backbone.norm.register_forward_hook(lambda _, __, output: tokens.append(output)):
            maps = self.backbone(image)
        return *maps, tokens[-1][:, 0]


def read_square(path: Path, side: int) -> Tensor:
    """Return the normalised picture ``[1, 3, side + 1, side + 1]``, so that one moved by a pixel can be cut out."""
    picture = Image.open(path).convert("RGB")
    edge = min(picture.size)
    left, top = (picture.width - edge) // 2, (picture.height - edge) // 2
    picture = picture.crop((left, top, left + edge, top + edge))
    values = np.asarray(picture.resize((side + 1, side + 1), Image.Resampling.BICUBIC), np.float32) / 255
    return torch.from_numpy((values - MEAN) / STD).float().permute(2, 0, 1)[None]


def compare(output: Sequence[Tensor], expected: Sequence[Tensor]) -> list[float]:
    """Return the agreement of each map, and the cosine of the class tokens."""
    *maps, token = output
    *expected_maps, expected_token = expected
    pairs = zip(maps, expected_maps, strict=True)
    found = [float(agreement(found.float(), target.float())) for found, target in pairs]
    return [*found, float(F.cosine_similarity(token.float(), expected_token.float()).mean())]


@torch.no_grad()
def measure(
    networks: Mapping[str, nn.Module], files: Sequence[Path], side: int, dtype: torch.dtype
) -> list[dict[str, Any]]:
    """Return a row for each network: agreement with softmax, seconds (in turns, one per picture), and memory.

    Seconds are those of the processor with one thread, and of the clock with more.
    """
    clock = process_time if torch.get_num_threads() == 1 else perf_counter
    agreements: dict[str, list[list[float]]] = {name: [] for name in [*networks, "one pixel"]}
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for file in files:
        picture = read_square(file, side).to(dtype)
        image, moved = picture[..., :side, :side], picture[..., 1:, 1:]
        outputs = {}
        for name, network in networks.items():
            begin = clock()
            outputs[name] = network(image)
            seconds[name].append(clock() - begin)
        outputs["one pixel"] = networks["softmax"](moved)
        for name, output in outputs.items():
            agreements[name].append(compare(output, outputs["softmax"]))
            print(f"{side} {file.name}, {name}: {agreements[name][-1]}", flush=True)
    rows = []
    for name, values in agreements.items():
        block, last, token = np.mean(values, axis=0).tolist()
        row = dict(side=side, name=name, pictures=len(files), block=block, last=last, token=token)
        row["lowest_block"], row["lowest_last"], _ = np.min(values, axis=0).tolist()
        if name in networks:
            low, median, high = np.quantile(seconds[name], (0.25, 0.5, 0.75)).tolist()
            peak = peak_extra_bytes(partial(networks[name], image))
            row |= dict(seconds=median, low=low, high=high, peak_bytes=peak)
        rows.append(row)
    return rows


def build_networks(weights: str, attentions: Sequence[str], students: Sequence[str]) -> dict[str, WithClassToken]:
    """Return DINOv2's ViT-S/14 with its softmax, with other operators, and as ``NAME=FILE`` of trainings say."""
    MMLogger.get_current_instance().setLevel("WARNING")
    network = WithClassToken(load_backbone(dict(arch="small"), weights)).eval()
    networks = {"softmax": network} | {name: mmlisa.swap(network, ATTENTIONS[name]) for name in attentions}
    for student in students:
        name, _, file = student.partition("=")
        settings = read_checkpoint(file)["meta"]["backbone"]
        networks[name] = WithClassToken(load_backbone({"arch": settings["arch"]}, file)).eval()
    return networks


def load_backbone(options: dict[str, Any], weights: str) -> DINOv2:
    source = dict(type="mmlisa.PublishedWeights", source=weights)
    backbone = DINOv2(**options, out_indices=BLOCKS, init_cfg=source)
    backbone.init_weights()
    return backbone


def build_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="of DINOv2's ViT-S/14: a file, or timm:NAME")
    parser.add_argument("--attentions", nargs="*", choices=ATTENTIONS, default=list(ATTENTIONS))
    parser.add_argument("--students", nargs="+", default=(), metavar="NAME=FILE", help="checkpoints of mmlisa adapt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = build_parser(__doc__)
    parser.add_argument("pictures", type=Path, help="folder of photographs")
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES, help="in pixels (default: %(default)s)")
    parser.add_argument("--most", type=int, help="number of photographs at a side (default: all that are as large)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    networks = {
        name: network.to(dtype)
        for name, network in build_networks(args.weights, args.attentions, args.students).items()
    }
    files = sorted(path for path in args.pictures.iterdir() if path.is_file())
    rows = []
    for side in args.sides:
        large = [file for file in files if min(Image.open(file).size) >= side]
        rows += measure(networks, large[: args.most], side, dtype)
        if args.out:
            machine = f"{describe_processor()}, PyTorch {torch.__version__}, {args.dtype}"
            content = dict(machine=machine, commit=describe_commit(), rows=rows)
            args.out.write_text(json.dumps(content, indent=1) + "\n")
        print(to_markdown([row for row in rows if row["side"] == side]), flush=True)


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the rows."""
    measures = "block 8 (lowest) | last tokens (lowest) | class token | seconds | ratio | MB"
    table = f"| pixels | pictures | attention | {measures} |\n"
    table += "|---|---|---|---|---|---|---|---|---|\n"
    seconds = {row["side"]: row["seconds"] for row in rows if row["name"] == "softmax"}
    for row in rows:
        values = f"{row['block']:.3f} ({row['lowest_block']:.3f}) | {row['last']:.3f} ({row['lowest_last']:.3f})"
        cost = "| |"
        if "seconds" in row:
            ratio = row["seconds"] / seconds[row["side"]]
            cost = f"{row['seconds']:.2f} | {ratio:.2f} | {row['peak_bytes'] / 1e6:.0f}"
        table += f"| {row['side']} | {row['pictures']} | {row['name']} | {values} | {row['token']:.3f} | {cost} |\n"
    return table


if __name__ == "__main__":
    main()
