"""Draws what a backbone's operators look at, for one or two trained models side by side.

``python tools/visualize.py IMAGE --model CONFIG CHECKPOINT [--model CONFIG CHECKPOINT] --layers 0 -1`` writes kernels.png
(attention kernels of query pixels, per layer and head) and features.png (norms of the feature maps, per block).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", help="image file")
    parser.add_argument(
        "--model",
        nargs="+",
        action="append",
        required=True,
        metavar="CONFIG [CHECKPOINT]",
        help="a config and its checkpoint (random weights without); once per model",
    )
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[0, -1], help="operators, from 0 or from the end (default: 0 -1)"
    )
    parser.add_argument("--heads", type=int, nargs="+", default=[0, 1], help="heads of each layer (default: 0 1)")
    parser.add_argument(
        "--query",
        type=float,
        nargs=2,
        action="append",
        metavar=("Y", "X"),
        help="query pixel, relative to the image; repeat for more (default: 0.5 0.5)",
    )
    parser.add_argument("--size", type=int, nargs=2, metavar=("H", "W"), help="size the image is resized to")
    parser.add_argument("--out-dir", type=Path, default=Path("work_dirs/visualize"), help="default: %(default)s")
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    args = parser.parse_args(argv)
    if any(len(model) > 2 for model in args.model):
        parser.error("--model takes a config and at most one checkpoint")
    return args


def main(args: argparse.Namespace) -> None:
    from mmlisa.analysis.pictures import (
        attention_kernels,
        draw_features,
        draw_kernels,
        feature_norms,
        load_backbone,
        read_image,
    )
    from mmlisa.engine.launch import load_config

    picture = read_image(args.image, tuple(args.size) if args.size else None)
    queries = [tuple(query) for query in args.query or [(0.5, 0.5)]]
    kernels, features = [], []
    for config, *checkpoint in args.model:
        backbone, mean, std = load_backbone(load_config(config), *(checkpoint or [None]), args.min_matched)
        image, label = (picture - mean) / std, Path(config).stem
        kernels.append((label, attention_kernels(backbone, image, args.layers, queries)))
        features.append((label, feature_norms(backbone, image)))
    draw_kernels(picture, queries, kernels, args.layers, args.heads, args.out_dir / "kernels.png")
    draw_features(picture, features, args.out_dir / "features.png")
    print(args.out_dir / "kernels.png")
    print(args.out_dir / "features.png")


if __name__ == "__main__":
    cli.run(main, parse_args())
