"""Train a model on a folder of your images: ``mmlisa fit DATA``."""

import argparse
import os
from pathlib import Path

from mmlisa import cli
from mmlisa.errors import UserError

MODELS = ("auto", "hylisanet", "flatten-swin-t", "ivit-t", "picodet", "dinov2-s", "dinov3-s")
TASKS = ("detection", "segmentation", "classification")


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "fit")
    add = arguments.add_argument
    text = "folder with annotations in COCO's, YOLO's, Pascal VOC's or LabelMe's format, class maps or class folders"
    add("data", type=os.path.abspath, help=text)  # a folder has one run, whatever its spelling
    add("--task", choices=TASKS, default="", help="default: what the folder holds")
    text = f"{', '.join(MODELS)}, or a config to inherit with its rate, batch and length (default: by image size and device)"
    add("--model", type=model, default="auto", metavar="NAME|CONFIG", help=text)
    add(
        "--weights",
        metavar="SOURCE",
        help="where the model starts: timm:NAME, a file of published weights, or a checkpoint",
    )
    add("--freeze", action="store_true", help="train the neck and the heads alone, for few images and trained features")
    add("--epochs", type=cli.positive_int, metavar="N", help="length of the training in passes over its images")
    text = "longer side of the images in training (default: by objects)"
    add("--size", type=cli.positive_int, metavar="S", help=text)
    text = "train and test on tiles of N pixels; auto: if a quarter of the objects would be smaller than 16 pixels (default)"
    add("--tile", type=tile, default="auto", metavar="auto|N|off", help=text)
    add("--batch", type=cli.positive_int, metavar="N", help="images a step (default: the recipe's)")
    text = "values of class maps that are not annotated"
    add("--ignore", type=int, nargs="+", default=(), metavar="VALUE", help=text)
    text = "train on images without an object (default: if they are at most as many as the others)"
    add("--background", choices=["auto", "on", "off"], default="auto", help=text)
    add("--work-dir", type=Path, help="where the results go (default: work_dirs/fit/NAME)")
    add("--dry-run", action="store_true", help="stop after the config and the drawing of twelve images")
    add("--restart", action="store_true", help="remove the results of an earlier run in the work dir, and begin again")
    return arguments


def model(text: str) -> str:
    """Parse the name of a model, or a config."""
    return text if text in MODELS else cli.config_file(text)


def tile(text: str) -> int | str:
    """Parse ``auto``, ``off`` or a number of pixels from 64 on."""
    if text in ("auto", "off"):
        return text
    if not text.isdecimal() or int(text) < 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, off or a number of pixels from 64 on")
    return int(text)


def main(args: argparse.Namespace) -> None:
    if args.size and isinstance(args.tile, int):
        raise UserError("--size: tiles are not resized; leave out --size or --tile")
    from mmlisa.fit.run import Options, fit

    options = Options(**{name: getattr(args, name) for name in Options.__annotations__})
    fit(
        options,
        args.work_dir or Path("work_dirs", "fit", Path(args.data).name),
        dry_run=args.dry_run,
        restart=args.restart,
    )
