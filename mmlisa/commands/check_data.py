"""Check a config's data, list what is wrong, and draw samples: ``mmlisa check-data CONFIG``."""

import argparse
import sys
from pathlib import Path

from mmlisa import cli

SPLITS = ("train", "val", "test")


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "check-data")
    cli.add_shared(arguments, "config", "--cfg-options")
    add = arguments.add_argument
    add("--split", nargs="+", choices=SPLITS, default=SPLITS, help="what to check (default: all)")
    add("--draw", type=cli.positive_int, metavar="N", help="draw N samples of each split after its pipeline")
    add("--out-dir", type=Path, default="work_dirs/samples", help="folder of the drawings (default: %(default)s)")
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.config import check_data, load_config, parse_options
    from mmlisa.training.log import import_quietly

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    check_data(cfg, *args.split)
    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    from mmlisa.data.checking import check_splits

    problems = 0
    for split, report in check_splits(cfg, args.split):
        for line in report.lines():
            print(f"{split}: {line}", flush=True)
        problems += len(report.problems)
        if args.draw:
            from mmlisa.visualization.samples import draw_samples

            draw_samples(cfg[f"{split}_dataloader"].dataset, args.draw, args.out_dir / f"{split}.png")
    print(f"{problems} problems" if problems else "nothing wrong")
    sys.exit(bool(problems))
