"""Draws a model's predictions on images and videos: ``python tools/infer.py CONFIG CHECKPOINT IMAGE [IMAGE ...]``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("checkpoint", help="checkpoint file")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image or video files, or folders of them")
    parser.add_argument("--out-dir", default="work_dirs/infer", help="where the pictures go (default: %(default)s)")
    parser.add_argument(
        "--score-thr", type=float, default=0.3, help="boxes below this score are not drawn (default: 0.3)"
    )
    parser.add_argument("--device", default=None, help="cpu, cuda:0, … (default: a GPU where there is one)")
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    cli.add_config_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.engine import launch
    from mmlisa.engine.log import import_quietly

    if not args.verbose:
        import_quietly()
    from mmlisa.analysis.inference import predict_pictures

    cfg = launch.load_config(args.config, options=launch.parse_options(args.cfg_options))
    predictions = predict_pictures(
        cfg,
        args.checkpoint,
        args.images,
        Path(args.out_dir),
        score_threshold=args.score_thr,
        device=args.device,
        min_matched=args.min_matched,
    )
    failed = []
    for source, target, summary in predictions:
        if target is None:
            failed.append(summary)
        else:
            print(f"{source} -> {target}: {summary}", flush=True)
    if failed:
        print(f"error: {len(failed)} of the inputs could not be read:", *failed, sep="\n  ", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main, parse_args())
