"""Train a model on a folder of your images: ``mmlisa fit DATA``."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument(
        "data",
        type=os.path.abspath,  # a folder has one run, however it is spelt
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
        default="auto",
        help="hylisanet, flatten-swin-t, ivit-t, picodet, or the name of a config that ships with mmlisa (default: by image "
        "size and device)",
    )
    parser.add_argument(
        "--weights", metavar="SOURCE", help="where the backbone starts: timm:NAME, or a checkpoint to load"
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=cli.count, metavar="N", help="length of the training in minutes")
    length.add_argument(
        "--epochs", type=cli.count, metavar="N", help="length of the training in passes over its images"
    )
    parser.add_argument(
        "--size", type=cli.count, metavar="S", help="longer side of the images in training (default: by objects)"
    )
    parser.add_argument(
        "--batch",
        type=number_or_auto,
        metavar="N",
        help="images a step (default: auto, the recipe's or what fits the memory)",
    )
    cli.add_device(parser)
    parser.add_argument("--work-dir", type=Path, help="where the results go (default: work_dirs/fit/NAME-OPTIONS)")
    parser.add_argument(
        "--resume", action="store_true", dest="goes_on", help="continue a run that was stopped, without asking"
    )
    parser.add_argument("--dry-run", action="store_true", help="stop after the config")
    return parser.parse_args(argv)


def number_or_auto(text: str) -> int | None:
    return None if text == "auto" else cli.count(text)


def main(args: argparse.Namespace) -> None:
    from mmlisa.fit.run import STEPS, Options, Run, fit

    names = ("task", "model", "weights", "minutes", "epochs", "size", "batch", "device")
    options = Options(args.data, **{name: getattr(args, name) for name in names})
    run = Run.open(args.work_dir or options.folder(), options)
    if run.data_changed and not args.goes_on:
        raise ValueError(
            f"{args.data} has changed since the run in {run.folder} read it; name the folder of a new run with --work-dir, or "
            "continue the old one, with its images, with --resume"
        )
    left = [step for step in STEPS if step not in run.done]
    if not left:
        print(
            f"this run is finished: {run.folder / 'report.html'}; other options or another --work-dir start a new one"
        )
        return
    if "check-data" in run.done and not args.goes_on and not args.dry_run:
        stopped = f"{run.folder} holds this run, stopped before {left[0]}"
        if not sys.stdin.isatty():
            raise ValueError(f"{stopped}; add --resume to continue it, or --work-dir for a new one")
        if input(f"{stopped}. Continue? [Y/n] ").strip().lower().startswith("n"):
            raise ValueError("not continued; --work-dir names the folder of a new run")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    try:
        fit(run, dry_run=args.dry_run)
    except KeyboardInterrupt:
        print(f"\nstopped; the same command with --resume continues in {run.folder}")
        raise
    if args.dry_run:
        print(f"the config is {run.config}; the same command without --dry-run goes on")


if __name__ == "__main__":
    cli.run(main, parse_args())
