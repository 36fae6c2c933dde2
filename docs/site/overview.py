"""Draws README's picture: detections beside time and memory over resolution.

``python docs/site/overview.py PICTURE PICTURE`` takes two pictures that ``mmlisa infer`` has drawn, and the numbers from
``docs/benchmarks/pixels_cpu.json``.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

DOCS = Path(__file__).parents[1]
BASELINE = "Swin-T"
COLOURS = {
    BASELINE: "#555555",
    "HyLiSANet-S": "#00897b",
    "LiSANet-S": "#80cbc4",
    "FLatten-Swin-T": "#e65100",
    "iViT-T": "#3949ab",
}


def draw_curves(axis, rows: list[dict], quantity: str, title: str) -> None:
    """Draw a line per backbone: its quantity, divided by that of the baseline, over the side of the image in pixels."""
    sides = [int(case.split("x")[0]) for case in dict.fromkeys(row["case"] for row in rows)]
    values = {name: [row[quantity] for row in rows if row["name"] == name] for name in COLOURS}
    ratios = {name: [a / b for a, b in zip(values[name], values[BASELINE], strict=True)] for name in COLOURS}
    height, gap = 0.0, 0.1 * max(max(line) for line in ratios.values())
    for name in sorted(COLOURS, key=lambda name: ratios[name][-1]):
        last, colour = ratios[name][-1], COLOURS[name]
        axis.plot(sides, ratios[name], marker="o", color=colour, lw=1.8, ms=4, ls="--" if name == BASELINE else "-")
        height = max(last, height + gap)  # names do not overlap
        axis.annotate(f"{name}  {last:.2f}", (sides[-1], height), (8, 0), textcoords="offset points", color=colour,
                      fontsize=8.5, va="center", annotation_clip=False)  # fmt: skip
    axis.set(title=title, xlabel="side of the image in pixels", xscale="log", ylim=(0, None))
    axis.set_xticks(sides, sides)
    axis.minorticks_off()
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs=2, metavar="PICTURE", help="drawn by mmlisa infer")
    parser.add_argument("--out", default=DOCS / "images" / "overview.png", help="default: %(default)s")
    args = parser.parse_args()
    rows = json.loads((DOCS / "benchmarks" / "pixels_cpu.json").read_text())["rows"]
    figure = plt.figure(figsize=(10.4, 5.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.6))
    for place, picture in enumerate(args.pictures):
        axis = figure.add_subplot(grid[place, 0])
        axis.imshow(Image.open(picture))
        axis.axis("off")
    draw_curves(figure.add_subplot(grid[0, 1]), rows, "seconds", f"time / {BASELINE}")
    draw_curves(figure.add_subplot(grid[1, 1]), rows, "peak_bytes", f"peak memory / {BASELINE}")
    figure.savefig(args.out, dpi=150)
    with Image.open(args.out) as drawn:  # a palette takes a fifth of the bytes
        drawn.convert("RGB").quantize(128).save(args.out, optimize=True)


if __name__ == "__main__":
    main()
