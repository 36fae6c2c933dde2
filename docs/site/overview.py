"""Draws README's picture: detections of the shipped model above time and memory over ConvNeXt-T's.

``python docs/site/overview.py`` predicts on the two pictures that ship with the model, and in tiles on scikit-image's
photograph of coins. The numbers are those of ``docs/benchmarks/backbones_cpu.json``.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
from matplotlib.axes import Axes
from PIL import Image
from pycocotools.mask import decode

import mmlisa
from mmlisa.inference.load import DEMO

DOCS = Path(__file__).parents[1]
BASELINE = "ConvNeXt-T"
COLOURS = {
    BASELINE: "#555555",
    "Swin-T": "#9e9e9e",
    "HyLiSANet-S": "#00897b",
    "FLatten-Swin-T": "#e65100",
    "MILA-T": "#8e24aa",
    "iViT-T": "#3949ab",
}


def draw_detections(axis: Axes, model: mmlisa.runtime.Model, picture: Path, tile: int | None = None) -> None:
    """Draw masks and boxes of one picture; the title counts them where tiles find many."""
    image = mmlisa.runtime.read_image(picture)
    found = model.predict(image, 0.5, **({"tile": tile, "overlap": 0.4} if tile else {}))
    drawing = image / 255
    for label, score, box, mask in zip(found.labels, found.scores, found.boxes, found.masks, strict=True):
        mask = decode(mask) if tile else mask  # masks of tiles are run lengths
        colour = plt.colormaps["tab10"](int(label))[:3]
        drawing[mask > 0] = 0.6 * drawing[mask > 0] + 0.4 * np.array(colour)
        x1, y1, x2, y2 = box
        axis.add_patch(plt.Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, color=colour, lw=1))
        if not tile:
            text, inside = f"{model.classes[label]} {score:.2f}", dict(facecolor=colour, edgecolor="none", pad=1.2)
            axis.text(x1 + 2, max(y1, 12), text, color="white", fontsize=8, va="bottom", bbox=inside, clip_on=True)
    axis.imshow(drawing)
    axis.axis("off")
    if tile:
        axis.set_title(f"{len(found.labels)} coins, in tiles of {tile} pixels", fontsize=9)


def draw_curves(axis: Axes, rows: list[dict], quantity: str, title: str) -> None:
    """Draw a line per backbone: its quantity, divided by that of the baseline, over the size of the image."""
    sizes = list(dict.fromkeys(row["case"] for row in rows))
    values = {name: [row[quantity] for row in rows if row["name"] == name] for name in COLOURS}
    ratios = {name: [a / b for a, b in zip(values[name], values[BASELINE], strict=True)] for name in COLOURS}
    height, gap = 0.0, 0.085 * max(max(line) for line in ratios.values())
    for name in sorted(COLOURS, key=lambda name: ratios[name][-1]):
        last, colour = ratios[name][-1], COLOURS[name]
        axis.plot(ratios[name], marker="o", color=colour, lw=1.8, ms=4, ls="--" if name == BASELINE else "-")
        height = max(last, height + gap)  # names do not overlap
        axis.annotate(f"{last:.2f}  {name}", (len(sizes) - 1, height), (8, 0), textcoords="offset points",
                      color=colour, fontsize=9, va="center", annotation_clip=False)  # fmt: skip
    axis.set_title(title, fontsize=10)
    axis.set_xticks(range(len(sizes)), sizes)
    axis.set_ylim(0, None)
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=DOCS / "images" / "overview.jpg", help="default: %(default)s")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    rows = json.loads((DOCS / "benchmarks" / "backbones_cpu.json").read_text())["rows"]
    model, coins = mmlisa.load("demo"), Path(skimage.data.__file__).with_name("coins.png")
    figure = plt.figure(figsize=(8, 5.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    pictures = [(picture, None) for picture in sorted(DEMO.glob("*.jpg"))] + [(coins, 128)]
    widths = [Image.open(picture).width / Image.open(picture).height for picture, _ in pictures]
    for axis, (picture, tile) in zip(above.subplots(1, 3, width_ratios=widths), pictures, strict=True):
        draw_detections(axis, model, picture, tile)
    left, right = below.subplots(1, 2)
    draw_curves(left, rows, "seconds", f"time over {BASELINE}'s")
    draw_curves(right, rows, "peak_bytes", f"peak memory over {BASELINE}'s")
    figure.savefig(args.out, dpi=200, pil_kwargs=dict(quality=88, subsampling=0, optimize=True))


if __name__ == "__main__":
    main(parse_args())
