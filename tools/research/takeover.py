"""Measures how well attention of linear cost replaces a trained softmax without training, for docs/takeover.md.

``python tools/research/takeover.py WEIGHTS FOLDER``: DINOv2's ViT-S/14 with its weights, on the central square of photographs.
Prints tables, and writes them with ``--out``. "One pixel" is softmax itself on the picture moved by one pixel: how settled its
features are.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.logging import MMLogger
from PIL import Image
from torch import Tensor, nn

import mmlisa
from mmlisa.models.backbones import DINOv2
from mmlisa.models.swap import agreement
from research.benchmark import describe_commit, describe_processor, peak_extra_bytes

SIDES = (518, 1022, 1400)
BLOCKS = (7, 11)  # the eighth block, and the last
ATTENTIONS: dict[str, dict[str, Any]] = {
    "cells 20, window 16": dict(type="CellAttention"),
    "cells 16, window 16": dict(type="CellAttention", cells=16),
    "cells 24, window 16": dict(type="CellAttention", cells=24),
    "cells 16, window 8": dict(type="CellAttention", window=8),
    "windows of 16 alone": dict(type="CellAttention", cells=0),
}
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


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
    return torch.from_numpy((values - _MEAN) / _STD).float().permute(2, 0, 1)[None]


def compare(output: Sequence[Tensor], expected: Sequence[Tensor]) -> list[float]:
    """Return the agreement of each map, and the cosine of the class tokens."""
    *maps, token = output
    *expected_maps, expected_token = expected
    found = [float(agreement(*pair)) for pair in zip(maps, expected_maps, strict=True)]
    return [*found, float(F.cosine_similarity(token, expected_token).mean())]


@torch.no_grad()
def measure(networks: Mapping[str, nn.Module], files: Sequence[Path], side: int) -> list[dict[str, Any]]:
    """Return a row for each network: agreement with softmax, CPU seconds (in turns, one per picture), and memory."""
    agreements: dict[str, list[list[float]]] = {name: [] for name in [*networks, "one pixel"]}
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    for file in files:
        picture = read_square(file, side)
        image, moved = picture[..., :side, :side], picture[..., 1:, 1:]
        outputs = {}
        for name, network in networks.items():
            begin = process_time()
            outputs[name] = network(image)
            seconds[name].append(process_time() - begin)
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


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="of DINOv2's ViT-S/14: a file, or timm:NAME")
    parser.add_argument("pictures", type=Path, help="folder of photographs")
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES, help="in pixels (default: %(default)s)")
    parser.add_argument("--attentions", nargs="+", choices=ATTENTIONS, default=list(ATTENTIONS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    MMLogger.get_current_instance().setLevel("WARNING")
    source = dict(type="mmlisa.PublishedWeights", source=args.weights)
    backbone = DINOv2("small", out_indices=BLOCKS, init_cfg=source)
    backbone.init_weights()
    network = WithClassToken(backbone).eval()
    networks = {"softmax": network} | {name: mmlisa.swap(network, ATTENTIONS[name]) for name in args.attentions}
    files = sorted(path for path in args.pictures.iterdir() if path.is_file())
    rows = []
    for side in args.sides:
        large = [file for file in files if min(Image.open(file).size) >= side]
        rows += measure(networks, large, side)
        if args.out:
            machine = f"{describe_processor()}, PyTorch {torch.__version__}, fp32"
            content = dict(machine=machine, commit=describe_commit(), rows=rows)
            args.out.write_text(json.dumps(content, indent=1) + "\n")
        print(to_markdown([row for row in rows if row["side"] == side]), flush=True)


def to_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the rows."""
    measures = "block 8 (lowest) | last tokens (lowest) | class token | CPU seconds | ratio | MB"
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
