"""Exports a model as ONNX or as a torch.export program: ``python tools/export.py CONFIG CHECKPOINT OUT.onnx``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file")
    parser.add_argument("checkpoint", help="checkpoint file, or 'none' for a model as it is made")
    parser.add_argument("out", type=Path, help="file to write: .onnx (opset 18) or .pt2 (torch.export)")
    parser.add_argument("--size", type=int, nargs=2, default=(224, 224), metavar=("H", "W"), help="default: 224 224")
    parser.add_argument("--dynamic", action="store_true", help="leave H and W free")
    parser.add_argument("--backbone-only", action="store_true", help="the backbone's maps")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="largest relative difference (default: %(default)s)"
    )
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.engine.config import load_config

    cfg = load_config(args.config)

    from mmlisa.deploy.export import build_exportable, export, largest_difference

    module = build_exportable(cfg, None if args.checkpoint == "none" else args.checkpoint, args.backbone_only)
    start = perf_counter()
    export(module, args.out, args.size, dynamic=args.dynamic)
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB in {perf_counter() - start:.0f} s")
    height, width = args.size
    sizes = [(height, width), *([(height + 32, width), (height, width + 64)] if args.dynamic else [])]
    for size in sizes:
        difference = largest_difference(module, args.out, size)
        print(f"{size[0]}x{size[1]}: differs from PyTorch by {difference:.1e} of the largest output")
        if difference > args.tolerance:
            raise ValueError(
                f"{args.out} differs from the model by {difference:.1e}, more than --tolerance {args.tolerance}"
            )


if __name__ == "__main__":
    cli.run(main, parse_args())
