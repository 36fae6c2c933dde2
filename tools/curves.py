"""Draw the curves of one training, or of several in one picture: ``python tools/curves.py WORK_DIR [WORK_DIR ...]``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("work_dirs", nargs="+", metavar="WORK_DIR", help="folders of trainings, finished or not")
    parser.add_argument("--out", type=Path, default="work_dirs/curves.png", help="file (default: %(default)s)")
    return parser.parse_intermixed_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.visualization.curves import draw_curves, read_curves

    runs = {work_dir: read_curves(work_dir) for work_dir in args.work_dirs}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw_curves(runs, args.out)
    print(args.out)


if __name__ == "__main__":
    cli.run(main, parse_args())
