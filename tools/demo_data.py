"""Make the offline demo data, real objects pasted on real backgrounds with exact masks: ``mmlisa demo-data``."""

import argparse
from collections.abc import Sequence

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("--root", default="data/demo", help="folder to make (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="source of every random choice (default: %(default)s)")
    parser.add_argument("--train-images", type=cli.count, default=280, help="default: %(default)s")
    parser.add_argument("--val-images", type=cli.count, default=50, help="default: %(default)s")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.datasets.demo import make_demo

    make_demo(args.root, args.seed, {"train": args.train_images, "val": args.val_images})


if __name__ == "__main__":
    cli.run(main, parse_args())
