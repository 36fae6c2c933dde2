"""Draws a model's predictions on pictures: ``python tools/infer.py CONFIG CHECKPOINT IMAGE [IMAGE ...]``."""

import argparse
from pathlib import Path

from mmengine.config import DictAction

from mmlisa.analysis.inference import predict_pictures
from mmlisa.engine.launch import load_config


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="config file")
    parser.add_argument("checkpoint", help="checkpoint file")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files or folders of them")
    parser.add_argument("--out-dir", default="work_dirs/infer", help="where the pictures go (default: %(default)s)")
    parser.add_argument(
        "--score-thr", type=float, default=0.3, help="boxes below this score are not drawn (default: 0.3)"
    )
    parser.add_argument("--device", default=None, help="cpu, cuda:0, … (default: a GPU where there is one)")
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    parser.add_argument(
        "--cfg-options", nargs="+", action=DictAction, metavar="KEY=VALUE", help="override config entries"
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args.config, options=args.cfg_options)
    pictures = predict_pictures(
        cfg,
        args.checkpoint,
        args.images,
        Path(args.out_dir),
        score_threshold=args.score_thr,
        device=args.device,
        min_matched=args.min_matched,
    )
    for picture in pictures:
        print(picture)


if __name__ == "__main__":
    main()
