"""Evaluate a checkpoint or an exported file (mAP, mIoU, top-1): ``python tools/test.py CONFIG CHECKPOINT``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli
from mmlisa.options import set_local_rank


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("checkpoint", help="checkpoint file, or an .onnx file of `mmlisa export`")
    parser.add_argument("--work-dir", help="where the log goes (default: work_dirs/<config's name>/test)")
    parser.add_argument("--out", metavar="FILE.pkl", help="write the predictions for offline evaluation")
    parser.add_argument("--show-dir", help="write pictures of the predictions")
    parser.add_argument("--tta", action="store_true", help="test-time augmentation")
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    cli.add_config_options(parser)
    cli.add_launcher(parser)
    args = parser.parse_args(argv)
    if args.out and not args.out.endswith((".pkl", ".pickle")):
        parser.error(f"--out {args.out}: predictions are written as .pkl or .pickle")
    if args.tta and args.checkpoint.endswith(".onnx"):
        parser.error("--tta needs a checkpoint: an exported file predicts on the image as it is")
    return args


def main(args: argparse.Namespace) -> None:
    set_local_rank(args.launcher, args.local_rank)
    if exported := args.checkpoint.endswith(".onnx"):
        from mmlisa import deploy

        deploy.load(args.checkpoint)  # another file than an exported one is reported before PyTorch is imported
    from mmlisa.training import config
    from mmlisa.training.config import check_data

    options = config.parse_options(args.cfg_options)
    cfg = config.load_config(args.config, options=options, work_dir=args.work_dir, launcher=args.launcher)
    if args.work_dir is None:  # the runner writes the config there, which would replace that of the training
        cfg.work_dir = str(Path(cfg.work_dir) / "test")
    check_data(cfg, "test")
    config.set_show_dir(cfg, args.show_dir)
    if args.tta:
        config.set_tta(cfg)

    from mmengine.registry import METRICS

    from mmlisa.checkpoints import load_checkpoint, use_safe_loader
    from mmlisa.deploy.cpu import optimize_for_cpu
    from mmlisa.training.runner import build_runner, test

    if exported:
        from mmlisa.deploy.inference import exported_config

        cfg = exported_config(cfg, args.checkpoint)
    else:
        if "://" not in args.checkpoint:
            load_checkpoint(args.checkpoint)  # reports a damaged file before the data are read and the model is built
        cfg.load_from = args.checkpoint
    cfg.resume = False
    use_safe_loader()
    runner = build_runner(cfg, args.min_matched, same_shapes=True, verbose=args.verbose)
    if not exported:
        optimize_for_cpu(runner.model)
    if args.out:
        dump = "mmdet.DumpDetResults" if cfg.get("default_scope") == "mmdet" else "mmlisa.DumpWithoutLogits"
        runner.test_evaluator.metrics.append(METRICS.build(dict(type=dump, out_file_path=args.out)))
    test(runner)


if __name__ == "__main__":
    cli.run(main, parse_args(), may_spin=True)
