"""Draw augmented training images with their annotations: ``python tools/browse.py CONFIG``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument(
        "--images", type=int, dest="number", default=16, metavar="N", help="number of images (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the choice and the augmentation (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default="work_dirs/browse.jpg", help="file to write (default: %(default)s)")
    cli.add_config_options(parser)
    args = parser.parse_args(argv)
    if args.out.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        parser.error(f"--out {args.out}: the suffix must be .jpg or .png")
    return args


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.config import check_data, load_config, parse_options

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    check_data(cfg, "train")

    from mmlisa.training.log import import_quietly

    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    import cv2

    from figures.training_images import draw_training_images

    sheet = draw_training_images(cfg, args.number, args.seed)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(args.out), sheet[..., ::-1])
    print(args.out)


if __name__ == "__main__":
    cli.run(main, parse_args())
