"""Evaluates a checkpoint (mAP, mIoU, top-1): ``python tools/test.py CONFIG CHECKPOINT``."""

import argparse
import os

from mmengine.config import DictAction
from mmengine.registry import METRICS

from mmlisa.engine.launch import build_runner, load_config, set_show_dir, set_tta


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="config file")
    parser.add_argument("checkpoint", help="checkpoint file")
    parser.add_argument("--work-dir", help="where the log goes (default: work_dirs/<config's name>)")
    parser.add_argument("--out", metavar="FILE.pkl", help="write the predictions for offline evaluation")
    parser.add_argument("--show-dir", help="write pictures of the predictions")
    parser.add_argument("--tta", action="store_true", help="test-time augmentation")
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    parser.add_argument(
        "--cfg-options", nargs="+", action=DictAction, metavar="KEY=VALUE", help="override config entries"
    )
    parser.add_argument("--launcher", choices=["none", "pytorch", "slurm", "mpi"], default="none")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help="set by the launcher")
    args = parser.parse_args()
    if args.out and not args.out.endswith((".pkl", ".pickle")):
        parser.error(f"--out {args.out}: predictions are written as .pkl or .pickle")
    return args


def main() -> None:
    args = parse_args()
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    cfg = load_config(args.config, options=args.cfg_options, work_dir=args.work_dir, launcher=args.launcher)
    cfg.load_from, cfg.resume = args.checkpoint, False
    if args.show_dir:
        set_show_dir(cfg, args.show_dir)
    if args.tta:
        set_tta(cfg)
    runner = build_runner(cfg, args.min_matched)
    if args.out:
        dump = "mmdet.DumpDetResults" if cfg.get("default_scope") == "mmdet" else "DumpResults"
        runner.test_evaluator.metrics.append(METRICS.build(dict(type=dump, out_file_path=args.out)))
    runner.test()


if __name__ == "__main__":
    main()
