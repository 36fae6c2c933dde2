"""Convert published weights into a checkpoint of this package: ``mmlisa convert SRC DST``.

The script recognises the family of the weights and the backbone that they fit best. ``--to BACKBONE ARCH`` names another one.
``flatten SRC DST`` and ``caformer SRC DST`` also convert the classifier's head. ``inflate IMAGE VIDEO_CONFIG DST`` converts an
image classifier into a video classifier.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

CLASSIFIERS = ("flatten", "caformer")
INFLATION_MODES = ("centre", "mean")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="[flatten|caformer] SRC DST | inflate IMAGE VIDEO_CONFIG DST",
        help="SRC: a file, an address, or timm:NAME",
    )
    parser.add_argument("--to", nargs=2, metavar=("BACKBONE", "ARCH"), help="for instance LiSANet hybrid-small")
    parser.add_argument("--ema", action="store_true", help="take the averaged weights of the file")
    parser.add_argument(
        "--mode", choices=INFLATION_MODES, default="centre", help="where inflated taps lie in time (default: centre)"
    )
    args = parser.parse_intermixed_args(argv)
    wanted = {"inflate": 4, **dict.fromkeys(CLASSIFIERS, 3)}.get(args.files[0], 2)
    args.family = args.files.pop(0) if len(args.files) == wanted and wanted > 2 else None
    if len(args.files) != (3 if args.family == "inflate" else 2) or (args.family and args.to):
        parser.error(
            f"SRC and DST are needed, and before them at most one of {', '.join(CLASSIFIERS)}, then without --to; or "
            "inflate IMAGE VIDEO_CONFIG DST"
        )
    return args


def main(args: argparse.Namespace) -> None:
    from mmengine.config import Config

    from mmlisa.checkpoints import save_checkpoint
    from mmlisa.conversion import convert_classifier, convert_published, inflate_classifier, read_source
    from mmlisa.training.building import build_model
    from mmlisa.training.config import load_config

    source, target = args.files[0], Path(args.files[-1])
    if args.family is None:
        checkpoint, report = convert_published(source, to=args.to, ema=args.ema)
    elif args.family == "inflate":
        backbone = load_config(args.files[1]).model.backbone.to_dict()
        model = build_model(Config(dict(model=dict(backbone, init_cfg=None), default_scope="mmlisa")))
        state_dict = inflate_classifier(read_source(source, args.ema), model, args.mode)
        checkpoint = {"state_dict": state_dict, "meta": {"backbone": backbone}}
        report = f"inflated: all {len(state_dict)} weights of the backbone; the video's head starts fresh"
    else:
        conversion = convert_classifier(read_source(source, args.ema), args.family)
        checkpoint = {"state_dict": conversion.state_dict, "meta": {"backbone": conversion.backbone}}
        report = conversion.report()
    save_checkpoint(checkpoint, target)
    print(report)
    print(f"written to {target}")


if __name__ == "__main__":
    cli.run(main, parse_args())
