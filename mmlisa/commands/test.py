"""Evaluate a checkpoint or an exported file (mAP, mIoU, top-1): ``mmlisa test CONFIG CHECKPOINT``."""

import argparse
import os
from pathlib import Path

from mmlisa import cli
from mmlisa.errors import UserError


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "test")
    add = arguments.add_argument
    cli.add_shared(arguments, "config", "--cfg-options")
    add("checkpoint", type=cli.weights_source, help="checkpoint file, or an .onnx file of `mmlisa export`")
    add("--work-dir", help="where the log goes (default: work_dirs/<config's name>/test)")
    add("--out", metavar="FILE.pkl", help="write the predictions for offline evaluation")
    add("--show-dir", help="write pictures of the predictions")
    add("--amp", action="store_true", help="half precision (docs/anywhere.md)")
    add("--tta", action="store_true", help="test-time augmentation")
    cli.add_shared(arguments, "--tile", "--overlap", "--may-differ", "--launcher", "--local_rank --local-rank")
    return arguments


def main(args: argparse.Namespace) -> None:
    if args.out and not args.out.endswith((".pkl", ".pickle")):
        raise UserError(f"--out: '{args.out}' is not a .pkl or .pickle file")
    if args.tta and (args.tile or args.checkpoint.endswith(".onnx")):
        raise UserError("--tta: tiles and exported files predict on the image as it is; leave --tta out")
    if args.amp and args.checkpoint.endswith(".onnx"):
        raise UserError("--amp: an exported file has the precision it was written in; leave --amp out")
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    from mmlisa.training import config

    options = config.parse_options(args.cfg_options)
    cfg = config.load_config(args.config, options=options, work_dir=args.work_dir, launcher=args.launcher)
    if args.work_dir is None:  # the runner writes its config there, which would replace that of the training
        cfg.work_dir = str(Path(cfg.work_dir) / "test")
    config.check_data(cfg, "test")
    cfg = config.config_for_test(cfg, args.checkpoint, show_dir=args.show_dir, tta=args.tta)

    from mmengine.registry import METRICS

    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.inference.faster import optimize_for_cpu, use_half
    from mmlisa.inference.predictor import check_exported_classes, describe_reading, exported_config
    from mmlisa.inference.tiled import tile_config
    from mmlisa.training.runner import build_runner, test

    use_safe_loader()
    if exported := args.checkpoint.endswith(".onnx"):
        cfg = exported_config(cfg, args.checkpoint, tile=args.tile, overlap=args.overlap)
    else:
        cfg = tile_config(cfg, args.tile, args.overlap)
    runner = build_runner(cfg, may_differ=args.may_differ, whole=True, verbose=args.verbose)
    if exported:
        check_exported_classes(runner)
        print(describe_reading(runner.model))
    else:
        optimize_for_cpu(runner.model)
        if args.amp:
            use_half(runner.model)
    for metric in runner.test_evaluator.metrics:
        if hasattr(metric, "table"):
            metric.table = True  # the results per class of mmlisa.CocoMetric
    if args.out:
        dumps = {"mmdet": "mmdet.DumpDetResults", "mmseg": "mmlisa.DumpWithoutLogits"}
        dump = dumps.get(cfg.get("default_scope"), "DumpResults")
        # Masks of tiles are run lengths already.
        if config.type_name(cfg.model) == "TiledDetector" or (exported and runner.model.tile):
            dump = "DumpResults"
        runner.test_evaluator.metrics.append(METRICS.build(dict(type=dump, out_file_path=args.out)))
    test(runner)
