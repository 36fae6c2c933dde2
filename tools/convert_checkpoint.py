"""Converts published weights into checkpoints of this package: ``python tools/convert_checkpoint.py flatten SRC DST``."""

import argparse
from collections.abc import Callable
from pathlib import Path

from mmlisa.checkpoints import load_checkpoint, save_checkpoint
from mmlisa.conversion import Conversion, convert_caformer, convert_flatten

CONVERTERS: dict[str, Callable[..., Conversion]] = {
    "flatten": convert_flatten,
    "caformer": convert_caformer,
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("converter", choices=CONVERTERS, help="whose weights")
    parser.add_argument("src", type=Path, help="published file; only weights are read from it, no code")
    parser.add_argument("dst", type=Path, help="file to write")
    parser.add_argument("--ema", action="store_true", help="take the averaged weights of the file")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    conversion = CONVERTERS[args.converter](load_checkpoint(args.src), ema=args.ema)
    save_checkpoint({"state_dict": conversion.state_dict, "meta": {"backbone": conversion.backbone}}, args.dst)
    print(conversion.report())
    print(f"written to {args.dst}")


if __name__ == "__main__":
    main()
