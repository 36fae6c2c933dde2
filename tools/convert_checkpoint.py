"""Converts published weights into a checkpoint of this package: ``python tools/convert_checkpoint.py SRC DST``.

The family is recognised. ``--to BACKBONE ARCH`` says what the weights are for, where that is not the one they fit best.
``python tools/convert_checkpoint.py flatten SRC DST`` (or ``caformer``) makes a classifier with its head.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

CLASSIFIERS = ("flatten", "caformer")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", nargs="+", metavar="[flatten|caformer] SRC DST", help="SRC: a file, an address, or timm:NAME"
    )
    parser.add_argument("--to", nargs=2, metavar=("BACKBONE", "ARCH"), help="for instance LiSANet hybrid-small")
    parser.add_argument("--ema", action="store_true", help="take the averaged weights of the file")
    args = parser.parse_args(argv)
    args.family = args.files.pop(0) if len(args.files) == 3 and args.files[0] in CLASSIFIERS else None
    if len(args.files) != 2 or (args.family and args.to):
        parser.error(
            f"SRC and DST are needed, and before them at most one of {', '.join(CLASSIFIERS)}, then without --to"
        )
    return args


def main(args: argparse.Namespace) -> None:
    from mmlisa.checkpoints import load_checkpoint, save_checkpoint
    from mmlisa.conversion import convert_caformer, convert_flatten, convert_published

    source, target = args.files
    if args.family is None:
        checkpoint, report = convert_published(source, to=args.to, ema=args.ema)
    else:
        convert = {"flatten": convert_flatten, "caformer": convert_caformer}[args.family]
        conversion = convert(load_checkpoint(source), ema=args.ema)
        checkpoint = {"state_dict": conversion.state_dict, "meta": {"backbone": conversion.backbone}}
        report = conversion.report()
    save_checkpoint(checkpoint, Path(target))
    print(report)
    print(f"written to {target}")


if __name__ == "__main__":
    cli.run(main, parse_args())
