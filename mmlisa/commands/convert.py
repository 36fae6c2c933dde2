"""Convert published weights into a checkpoint of this package: ``mmlisa convert SRC DST``.

The family of the weights and the backbone that they fit best are recognised. ``--to BACKBONE ARCH`` names another one.
``--inflate VIDEO_CONFIG`` converts an image classifier into the backbone of a video classifier.
"""

import argparse
from pathlib import Path

from mmlisa import cli


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "convert")
    add = arguments.add_argument
    add("source", metavar="SRC", help="a file, an address, or timm:NAME")
    add("target", metavar="DST", type=Path, help="the checkpoint to write")
    add("--to", nargs=2, metavar=("BACKBONE", "ARCH"), help="for instance LiSANet hybrid-small")
    add("--head", action="store_true", help="convert the classifier's head as well, for mmpretrain")
    add("--ema", action=argparse.BooleanOptionalAction, help="the averaged weights of the file, or the others")
    text = "smallest share of the backbone's parameters that SRC must fill (default: 0.1)"
    add("--min-matched", type=cli.fraction, default=0.1, metavar="SHARE", help=text)
    add("--inflate", metavar="VIDEO_CONFIG", help="config of the video classifier to inflate SRC for")
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.checkpoints import below_prefix, save_checkpoint
    from mmlisa.conversion import convert_published, inflate, read

    if args.inflate:
        from mmengine.config import Config

        from mmlisa.training.config import build_model, load_config

        backbone = load_config(args.inflate).model.backbone.to_dict()
        model = build_model(Config(dict(model=dict(backbone, init_cfg=None), default_scope="mmlisa")))
        weights = inflate(below_prefix(read(args.source, args.ema)["state_dict"], "backbone."), model)
        state_dict = {f"backbone.{name}": tensor for name, tensor in weights.items()}
        checkpoint = {"state_dict": state_dict, "meta": {"backbone": model.settings()}}
        report = f"inflated: all {len(weights)} weights of the backbone; the video's head starts fresh"
    else:
        checkpoint, report = convert_published(
            args.source, to=args.to, ema=args.ema, head=args.head, min_matched=args.min_matched
        )
    save_checkpoint(checkpoint, args.target)
    print(report)
    print(f"written to {args.target}")
