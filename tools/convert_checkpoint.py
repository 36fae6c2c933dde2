"""Converts published weights into checkpoints of this package: ``python tools/convert_checkpoint.py flatten SRC DST``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

CONVERTERS = ("flatten", "caformer")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("converter", choices=CONVERTERS, help="whose weights")
    parser.add_argument("src", type=Path, help="published file; only weights are read from it, no code")
    parser.add_argument("dst", type=Path, help="file to write")
    parser.add_argument("--ema", action="store_true", help="take the averaged weights of the file")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    import torch

    from mmlisa.checkpoints import convert_caformer, convert_flatten, load_checkpoint

    convert = {"flatten": convert_flatten, "caformer": convert_caformer}[args.converter]
    conversion = convert(load_checkpoint(args.src), ema=args.ema)
    args.dst.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": conversion.state_dict, "meta": {"backbone": conversion.backbone}}, args.dst)
    print(conversion.report())
    print(f"written to {args.dst}")


if __name__ == "__main__":
    cli.run(main, parse_args())
