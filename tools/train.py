"""Trains a detector, segmentor or classifier: ``python tools/train.py CONFIG``."""

import argparse
import os

from mmengine.config import DictAction

from mmlisa.engine.launch import build_runner, load_config, set_amp, set_resume


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="config file")
    parser.add_argument("--work-dir", help="where logs and checkpoints go (default: work_dirs/<config's name>)")
    parser.add_argument("--amp", action="store_true", help="automatic mixed precision")
    parser.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="CHECKPOINT",
        help="continue from this checkpoint, or from the newest of the work dir",
    )
    parser.add_argument(
        "--auto-scale-lr", action="store_true", help="scale the learning rate with the total batch size"
    )
    parser.add_argument(
        "--min-matched", type=float, default=0.5, help="share of the model a load_from checkpoint must hold"
    )
    parser.add_argument(
        "--cfg-options", nargs="+", action=DictAction, metavar="KEY=VALUE", help="override config entries"
    )
    parser.add_argument("--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help="set by the launcher")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    cfg = load_config(args.config, options=args.cfg_options, work_dir=args.work_dir, launcher=args.launcher)
    if args.amp:
        set_amp(cfg)
    if args.auto_scale_lr:
        if "base_batch_size" not in cfg.get("auto_scale_lr", {}):
            raise ValueError(f"--auto-scale-lr: {args.config} has no auto_scale_lr.base_batch_size")
        cfg.auto_scale_lr.enable = True
    if args.resume:
        set_resume(cfg, None if args.resume == "auto" else args.resume)
    build_runner(cfg, args.min_matched).train()


if __name__ == "__main__":
    main()
