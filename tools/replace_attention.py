"""Replace the attention in a trained detector and train on: ``python tools/replace_attention.py``.

The script trains a narrow Swin detector on the demo scenes once. It then replaces the attention and trains every network for the
same CPU seconds: from scratch, from the host's weights, and with distillation from the host.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="+", metavar="NAME", help="run these only (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="run these only (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the CSV (default: that of the runs)")
    parser.add_argument("--report", action="store_true", help="run nothing, write the tables of what was run")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.log import import_quietly

    import_quietly()
    from research import replacement

    for name, values, known in (
        ("operators", args.operators, replacement.OPERATORS),
        ("seeds", args.seeds, replacement.SEEDS),
    ):
        if unknown := set(values or ()) - set(known):
            raise ValueError(f"--{name}: unknown {unknown}; known are {', '.join(map(str, known))}")
    failures = [] if args.report else replacement.run(args.operators, args.seeds, args.jobs)
    print(replacement.write(args.out or replacement.ROOT))
    if failures:
        raise ChildProcessError(f"{len(failures)} runs failed: " + "; ".join(failures))


if __name__ == "__main__":
    cli.run(main, parse_args())
