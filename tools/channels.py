"""Write docs/channels.md, the table of the channels and strides of every arch of every backbone."""

import argparse
from pathlib import Path


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parents[1] / "docs" / "channels.md"
    parser.add_argument("--out", type=Path, default=default, help="file to write (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    from mmlisa.models.feature_maps import to_markdown

    args.out.write_text(to_markdown())


if __name__ == "__main__":
    main()
