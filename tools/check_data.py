"""Checks a config's data and lists everything that is wrong: ``python tools/check_data.py CONFIG``."""

import argparse
import sys
from collections.abc import Sequence

from mmlisa import cli

SPLITS = ("train", "val", "test")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS, help="what to check (default: all)")
    cli.add_config_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.engine.config import load_config, parse_options
    from mmlisa.engine.config_checks import check_data

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    check_data(cfg, *args.split)

    from mmlisa.engine.log import import_quietly

    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    from mmlisa.datasets.checking import find_all

    found, seen = 0, []
    for split in args.split:
        dataset = (cfg.get(f"{split}_dataloader") or {}).get("dataset")
        if dataset is None or dataset in seen:  # most configs test on the validation data
            continue
        seen.append(dataset)
        for line in find_all(cfg, split):
            found += 1
            print(f"{split}: {line}", flush=True)
    print(f"{found} problems" if found else "nothing wrong")
    sys.exit(bool(found))


if __name__ == "__main__":
    cli.run(main, parse_args())
