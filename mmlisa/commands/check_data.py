"""Check the data of a config or of a folder, list what is wrong, and draw samples: ``mmlisa check-data CONFIG|FOLDER``."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from mmlisa import cli

SPLITS = ("train", "val", "test")
LISTED = 20  # problems of a split, and classes


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "check-data")
    cli.add_shared(arguments, "config", type=config_or_folder)
    cli.add_shared(arguments, "--cfg-options")
    add = arguments.add_argument
    add("--split", nargs="+", choices=SPLITS, default=SPLITS, help="what to check (default: all)")
    add("--draw", type=cli.positive_int, metavar="N", help="draw N samples of each split after its pipeline")
    add("--out-dir", type=Path, default="work_dirs/samples", help="folder of the drawings (default: %(default)s)")
    return arguments


def config_or_folder(text: str) -> str:
    """Parse the name of a config, or of a folder of annotated images."""
    return text if Path(text).is_dir() else cli.config_file(text)


def main(args: argparse.Namespace) -> None:
    if Path(args.config).is_dir():
        from mmlisa.data.preparation import prepare_data

        print(*prepare_data(args.config).summary(), sep="\n")
        return
    from mmlisa.training.config import check_data, import_quietly, load_config, parse_options

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    check_data(cfg, *args.split)
    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    from mmlisa.data.checking import check_splits

    problems = samples = 0
    unread = False
    for checked in check_splits(cfg, args.split):
        split = checked.split
        problems += len(checked.problems)
        samples += checked.size
        unread |= bool(checked.unread)
        lines = checked.problems[:LISTED]
        if len(checked.problems) > LISTED:
            lines.append(f"{len(checked.problems) - LISTED} more problems")
        lines += checked.unread
        print(f"{split}: {checked.size} samples", *_describe(checked.counts), *lines, sep=f"\n{split}: ", flush=True)
        if args.draw:
            from mmlisa.visualization.overlays import draw_samples

            draw_samples(cfg[f"{split}_dataloader"].dataset, args.draw, args.out_dir / f"{split}.png")
    if problems:
        print(f"{problems} problems")
    elif samples:
        print("nothing wrong in what was read" if unread else "nothing wrong")
    else:
        print("nothing was read: no data loader of these splits has samples")
    sys.exit(bool(problems) or not samples)


def _describe(counts: Counter[str]) -> list[str]:
    """Return a line with the number of objects of each class, the fewest last; none for class maps, which are not counted."""
    if not counts.total():
        return []
    parts = [f"{name} {count}" for name, count in counts.most_common()]
    if len(parts) > LISTED:
        parts[LISTED - 2 : -1] = [f"{len(parts) - LISTED + 1} more"]
    return [", ".join(parts)]
