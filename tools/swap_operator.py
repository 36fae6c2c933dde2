"""Measure how much a host's weights help another operator: ``python tools/swap_operator.py``.

The script trains Swin on the demo classes. It then trains FLatten-Swin from these weights, for a third of the iterations, and
from scratch.
"""

import argparse
from collections.abc import Sequence

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=240, help="iterations from scratch (default: %(default)s)")
    parser.add_argument("--every", type=int, default=20, help="iterations between two tests (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds to average (default: %(default)s)")
    parser.add_argument("--train", type=int, default=60, help="training images per class (default: %(default)s)")
    parser.add_argument("--val", type=int, default=20, help="test images per class (default: %(default)s)")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    import torch

    from research.operator_swap import demo_splits, run_swap, to_markdown

    torch.set_num_threads(1)
    train, test = demo_splits(dict(train=args.train, val=args.val))
    swaps = [run_swap(train, test, args.iterations, args.every, seed) for seed in range(args.seeds)]
    print(to_markdown(swaps))


if __name__ == "__main__":
    cli.run(main, parse_args())
