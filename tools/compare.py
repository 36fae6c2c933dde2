"""Train operators and backbones on the same data with the same head, budget and seeds, and compare them."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli
from research.comparison.suites import SUITES


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("suite", choices=SUITES, help="minutes (quick), hours (default, lisa), or days on a GPU (full)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="comparisons of the suite (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once (default: %(default)s)")
    parser.add_argument("--work-dir", type=Path, help="results of the runs (default: work_dirs/comparison/SUITE)")
    parser.add_argument("--out", type=Path, help="folder of the tables and plots (default: the work dir)")
    parser.add_argument("--measure", action="store_true", help="time and count the backbones only, train nothing")
    parser.add_argument("--report", action="store_true", help="run nothing, write tables and plots of what was run")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from research.comparison import jobs, processes, report

    suite = SUITES[args.suite]
    if unknown := set(args.only or ()) - suite.keys():
        raise ValueError(f"--only {' '.join(sorted(unknown))}: the comparisons of {args.suite} are {', '.join(suite)}")
    suite = {name: comparison for name, comparison in suite.items() if name in (args.only or suite)}
    work_dir = args.work_dir or Path("work_dirs") / "comparison" / args.suite
    out = args.out or work_dir
    every = list(jobs.list_jobs(suite))
    todo = [] if args.report else [job for job in every if job.candidate is None or not args.measure]
    failures = processes.run_all(todo, work_dir, args.jobs)
    out.mkdir(parents=True, exist_ok=True)
    for name in suite:
        print(report.write([job for job in every if job.name == name], work_dir, out))
    if failures:
        raise ChildProcessError(f"{len(failures)} runs failed: " + "; ".join(failures))


if __name__ == "__main__":
    cli.run(main, parse_args())
