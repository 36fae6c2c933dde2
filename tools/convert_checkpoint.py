"""Converts published weights into a checkpoint of this package: ``python tools/convert_checkpoint.py SRC DST``.

The family is recognised. ``--to BACKBONE ARCH`` says what the weights are for, where that is not the one they fit best.
``python tools/convert_checkpoint.py flatten SRC DST`` (or ``caformer``) makes a classifier with its head.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmlisa.checkpoints import load_checkpoint, save_checkpoint
from mmlisa.conversion import Conversion, convert_caformer, convert_flatten, convert_published

CLASSIFIERS: dict[str, Callable[..., Conversion]] = {
    "flatten": convert_flatten,
    "caformer": convert_caformer,
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files", nargs="+", metavar="[flatten|caformer] SRC DST", help="SRC: a file, an address, or timm:NAME"
    )
    parser.add_argument("--to", nargs=2, metavar=("BACKBONE", "ARCH"), help="for instance LiSANet hybrid-small")
    parser.add_argument("--ema", action="store_true", help="take the averaged weights of the file")
    args = parser.parse_args()
    args.family = args.files.pop(0) if len(args.files) == 3 and args.files[0] in CLASSIFIERS else None
    if len(args.files) != 2 or (args.family and args.to):
        parser.error(
            f"SRC and DST are needed, and before them at most one of {', '.join(CLASSIFIERS)}, then without --to"
        )
    return args


def convert(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The checkpoint to write, and a report."""
    source = args.files[0]
    if args.family is None:
        return convert_published(source, to=args.to, ema=args.ema)
    conversion = CLASSIFIERS[args.family](load_checkpoint(source), ema=args.ema)
    return {"state_dict": conversion.state_dict, "meta": {"backbone": conversion.backbone}}, conversion.report()


def main() -> None:
    args = parse_args()
    try:
        checkpoint, report = convert(args)
        save_checkpoint(checkpoint, Path(args.files[1]))
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    print(report)
    print(f"written to {args.files[1]}")


if __name__ == "__main__":
    main()
