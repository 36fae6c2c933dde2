"""Train a model on a folder of your images: ``mmlisa fit DATA``."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

MODELS = ("auto", "hylisanet", "flatten-swin-t", "ivit-t", "picodet")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument(
        "data",
        type=os.path.abspath,  # a folder has one run, whatever its spelling
        help="folder with annotations in COCO's, YOLO's, Pascal VOC's or LabelMe's format, class maps or class folders",
    )
    parser.add_argument(
        "--task",
        choices=["detection", "segmentation", "classification"],
        default="",
        help="default: what the folder holds",
    )
    parser.add_argument(
        "--model",
        type=model,
        default="auto",
        metavar="NAME|CONFIG",
        help=f"{', '.join(MODELS)}, or a config to inherit with its rate, batch and length (default: by image size and device)",
    )
    parser.add_argument(
        "--weights", metavar="SOURCE", help="where the backbone starts: timm:NAME, or a checkpoint to load"
    )
    parser.add_argument(
        "--epochs", type=cli.count, metavar="N", help="length of the training in passes over its images"
    )
    parser.add_argument(
        "--size", type=cli.count, metavar="S", help="longer side of the images in training (default: by objects)"
    )
    parser.add_argument(
        "--tile",
        type=tile,
        default="auto",
        metavar="auto|N|off",
        help="train and test on tiles of N pixels; auto: if a quarter of the objects would be smaller than 16 pixels (default)",
    )
    parser.add_argument(
        "--memory",
        type=float,
        metavar="GIB",
        help="limit of the comparison of tiles and one pass (default: 3/4 of all)",
    )
    parser.add_argument("--batch", type=cli.count, metavar="N", help="images a step (default: the recipe's)")
    parser.add_argument("--work-dir", type=Path, help="where the results go (default: work_dirs/fit/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="stop after the config")
    args = parser.parse_args(argv)
    if args.size and isinstance(args.tile, int):
        parser.error("argument --size: tiles are not resized; leave out --size or --tile")
    return args


def model(text: str) -> str:
    """Parse the name of a model, or a config."""
    return text if text in MODELS else cli.config(text)


def tile(text: str) -> int | str:
    """Parse ``auto``, ``off`` or a number of pixels from 64 on."""
    if text in ("auto", "off"):
        return text
    if not text.isdecimal() or int(text) < 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, off or a number of pixels from 64 on")
    return int(text)


def main(args: argparse.Namespace) -> None:
    from mmlisa.fit.run import Options, fit

    options = Options(**{name: getattr(args, name) for name in Options.__annotations__})
    fit(options, args.work_dir or Path("work_dirs", "fit", Path(args.data).name), dry_run=args.dry_run)


if __name__ == "__main__":
    cli.run(main, parse_args())
