"""Write docs/channels.md, the table of the channels and strides of every arch of every backbone."""

import argparse
from pathlib import Path


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parents[1] / "docs" / "channels.md"
    parser.add_argument("--out", type=Path, default=default, help="file to write (default: %(default)s)")
    return parser.parse_args()


def to_markdown() -> str:
    """Return the page."""
    from mmlisa.models import backbones
    from mmlisa.models.feature_maps import backbone_class, feature_maps

    lines = [
        "# Channels and strides",
        "",
        "The table lists the maps of every named arch. A neck needs their channels. For another arch or other stages, call:",
        "",
        "```python",
        "import mmlisa",
        "",
        'mmlisa.channels("LiSANet", "hybrid-small", out_indices=(1, 2, 3))  # [128, 320, 384]',
        'mmlisa.strides("LiSANet", "hybrid-small", out_indices=(1, 2, 3))  # [8, 16, 32]',
        "```",
        "",
        "`python tools/channels.py` writes this page. A plain ViT can return the map of each block; all have the same",
        "channels and stride. By default it returns the last.",
        "",
        "| backbone | arch | out_indices | channels | strides |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(backbones.__all__, key=str.lower):
        for arch in backbone_class(name).arch_settings:
            maps = feature_maps(name, arch)
            columns = [" ".join(map(str, column)) for column in zip(*maps, strict=True)]
            lines.append(f"| {name} | {arch} | {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    args = parse_args()
    args.out.write_text(to_markdown())


if __name__ == "__main__":
    main()
