"""Count every model of the papers' tables and write the counts beside the papers' numbers: ``--paper lisa``.

``--figures`` draws figures that need no trained weights instead, of Castling-ViT (1, 3, 5, 7) and FLatten (4, 7), in a minute.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

PAPERS = ("castling", "flatten", "ivit", "lisa", "newer")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("--paper", nargs="+", choices=PAPERS, default=PAPERS, help="papers (default: all)")
    default = Path(__file__).parents[1] / "docs" / "tables"
    parser.add_argument("--out", type=Path, default=default, help="folder of the pages (default: %(default)s)")
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="draw figures into this folder, and count nothing"
    )
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmengine.logging import MMLogger

    from mmlisa.training.log import import_quietly
    from research.paper_tables import evaluate, load_table, to_markdown

    import_quietly()
    if args.figures:
        from research.paper_figures import FIGURES

        for name in args.paper:
            for figure, draw in FIGURES.get(name, {}).items():
                draw(args.figures / f"{name}_{figure}.png")
        print(f"written to {args.figures}")
        return
    MMLogger.get_current_instance().setLevel("WARNING")  # mmpretrain reports every classifier that it builds
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.paper:
        paper = load_table(name)
        page = args.out / f"{name}.md"
        page.write_text(to_markdown(paper, evaluate(paper["tables"])), encoding="utf-8")
        print(f"written to {page}")


if __name__ == "__main__":
    cli.run(main, parse_args())
