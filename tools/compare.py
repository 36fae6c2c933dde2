"""Train operators and backbones on the same data with the same head, budget and seeds, and compare them.

A run whose result file exists is skipped, so the same command continues after an interruption.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli
from research.suites import ROOT, SUITES


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("suite", choices=SUITES, help="what to compare; each takes hours on a CPU")
    names = [name for suite in SUITES.values() for name in suite]
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help="comparisons of the suite (default: all)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT, help="folder of the tables (default: %(default)s)")
    parser.add_argument("--report", action="store_true", help="run nothing, write the tables of what was run")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from research import comparison

    suite = {name: one for name, one in SUITES[args.suite].items() if name in (args.only or SUITES[args.suite])}
    failures = [] if args.report else comparison.run_all(suite, args.jobs)
    for name, one in suite.items():
        print(comparison.write_report(name, one, Path(args.out)))
    if failures:
        raise ChildProcessError(f"{len(failures)} runs failed: " + "; ".join(failures))


if __name__ == "__main__":
    cli.run(main, parse_args())
