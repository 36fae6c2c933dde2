"""Print the counts of every model of a paper's tables beside the paper's numbers, pages of the site: ``--paper lisa``.

``--figures`` draws figures that need no trained weights instead, of Castling-ViT (1, 3, 5, 7) and FLatten (4, 6), in a minute.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

PAPERS = ("castling", "flatten", "ivit", "lisa", "newer")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("--paper", nargs="+", choices=PAPERS, default=PAPERS, help="papers (default: all)")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw figures into this folder instead")
    return parser.parse_args(argv)


def to_markdown(paper: str) -> str:
    """Return the page of a paper, one of :data:`PAPERS`; the models are built on the meta device."""
    from mmengine.logging import MMLogger

    from research.paper_tables import evaluate, load_table, to_markdown

    MMLogger.get_current_instance().setLevel("WARNING")  # mmpretrain reports every classifier that it builds
    table = load_table(paper)
    return to_markdown(table, evaluate(table["tables"]))


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.config import import_quietly

    import_quietly()
    if args.figures is None:
        for paper in args.paper:
            print(to_markdown(paper))
        return
    from research.paper_figures import FIGURES

    args.figures.mkdir(parents=True, exist_ok=True)
    for paper in args.paper:
        for name, draw in FIGURES.get(paper, {}).items():
            draw(args.figures / f"{paper}_{name}.png")


if __name__ == "__main__":
    cli.run(main, parse_args())
