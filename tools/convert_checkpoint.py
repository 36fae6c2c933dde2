"""Converts weights into checkpoints of this package.

``python tools/convert_checkpoint.py flatten SRC DST``, and ``inflate IMAGE VIDEO_CONFIG DST`` from images to video.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from mmlisa.checkpoints import Conversion, convert_caformer, convert_flatten, load_checkpoint
from mmlisa.checkpoints.conversion import unwrap
from mmlisa.checkpoints.inflation import MODES, inflate_classifier
from mmlisa.engine.launch import load_config
from mmlisa.registry import MODELS

CONVERTERS: dict[str, Callable[..., Conversion]] = {
    "flatten": convert_flatten,
    "caformer": convert_caformer,
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    converters = parser.add_subparsers(dest="converter", required=True, help="whose weights")
    for name in (*CONVERTERS, "inflate"):
        converter = converters.add_parser(name)
        converter.add_argument("src", type=Path, help="their file; only weights are read from it, no code")
        if name == "inflate":
            converter.add_argument("config", help="config of the video classifier that is to start from them")
            converter.add_argument("--mode", choices=MODES, default="centre", help="where taps lie (default: centre)")
        else:
            converter.add_argument("--ema", action="store_true", help="take the averaged weights of the file")
        converter.add_argument("dst", type=Path, help="file to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.converter == "inflate":
        backbone = load_config(args.config).model.backbone.to_dict()
        state_dict = inflate_classifier(unwrap(load_checkpoint(args.src), ema=False), MODELS.build(backbone), args.mode)
        report = f"inflated: {len(state_dict)} weights of the backbone, each that it has; the video's head starts anew"
    else:
        conversion = CONVERTERS[args.converter](load_checkpoint(args.src), ema=args.ema)
        state_dict, backbone, report = conversion.state_dict, conversion.backbone, conversion.report()
    args.dst.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": state_dict, "meta": {"backbone": backbone}}, args.dst)
    print(report)
    print(f"written to {args.dst}")


if __name__ == "__main__":
    main()
