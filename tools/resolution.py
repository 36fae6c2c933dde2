"""Test a checkpoint on smaller and larger images: ``python tools/resolution.py CONFIG CHECKPOINT --factors 0.5 1 2``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("checkpoint", help="checkpoint file")
    parser.add_argument(
        "--factors",
        type=float,
        nargs="+",
        default=[0.5, 0.75, 1, 1.5, 2],
        help="factors of the size of the test images (default: 0.5 to 2)",
    )
    parser.add_argument(
        "--work-dir", help="where logs and resolution.png go (default: work_dirs/<config's name>/resolution)"
    )
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    cli.add_config_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.deploy.cpu import optimize_for_cpu
    from mmlisa.training.config import check_data, load_config, parse_options, set_show_dir
    from mmlisa.training.log import import_quietly
    from mmlisa.training.runner import build_runner

    if not args.verbose:
        import_quietly()
    from research import resolution

    results = {}
    for factor in args.factors:
        options = parse_options(args.cfg_options)
        cfg = load_config(args.config, options=options, work_dir=args.work_dir)
        if args.work_dir is None:  # the runner writes the config there, which would replace that of the training
            cfg.work_dir = str(Path(cfg.work_dir) / "resolution")
        check_data(cfg, "test")
        resolution.scale_test_images(cfg, factor)
        set_show_dir(cfg, None)
        cfg.load_from, cfg.resume = args.checkpoint, False
        if cfg.get("visualizer"):  # MMEngine's visualizers are global, by name
            cfg.visualizer.name = f"images times {factor}"
        runner = build_runner(cfg, args.min_matched, verbose=args.verbose)
        optimize_for_cpu(runner.model)
        results[factor] = runner.test()
    print(resolution.to_markdown(results))
    path = Path(runner.work_dir) / "resolution.png"
    resolution.draw(results, path)
    print(path)


if __name__ == "__main__":
    cli.run(main, parse_args())
