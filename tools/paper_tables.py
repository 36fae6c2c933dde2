"""Count every model of the papers' tables and print the counts beside the papers' numbers: ``--paper lisa``."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

PAPERS = ("castling", "flatten", "ivit", "lisa", "newer")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("--paper", nargs="+", choices=PAPERS, default=PAPERS, help="papers (default: all)")
    parser.add_argument("--format", choices=("md", "json"), default="md", help="output format (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file to write, one paper after another (default: standard output)")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from research.paper_tables import evaluate, load_table, to_json, to_markdown

    modules = {paper: load_table(paper) for paper in args.paper}
    results = {paper: evaluate(module.ROWS) for paper, module in modules.items()}
    if args.format == "json":
        text = json.dumps({paper: to_json(r) for paper, r in results.items()}, indent=1) + "\n"
    else:
        text = "\n".join(to_markdown(modules[paper], r) for paper, r in results.items())
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    cli.run(main, parse_args())
