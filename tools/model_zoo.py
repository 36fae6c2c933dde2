"""Write docs/model_zoo.md, configs/metafile.yml and README's table of backbones; run in a clone.

``python tools/model_zoo.py`` builds the model of every config on the meta device and counts its operations, which takes minutes.
Times come from ``docs/benchmarks``, shares of published weights from ``docs/published_weights.md``.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

INTRODUCTION = """
**We publish no weights.** The accuracies are the papers'. We reproduced none of them, because that needs the full trainings. We
trained only the demo configs, on the offline demo data ([results](first_hour.md#what-the-demos-reach)).

`python tools/model_zoo.py` writes this page.

* **Parameters and FLOPs** (multiply-accumulates, at the size in the column *input*) are counted from each config. The paper's
  numbers stand before ours if a table of the paper has the same model ([all tables](tables/lisa.md)). The FLOPs
  of two-stage detectors are those for 1000 boxes and 100 masks, those of DINO leave out all but the backbone and the neck,
  and those of Mask2Former all but the backbone.
* **Time and memory** are measured for one image on two CPU cores. A Mask R-CNN is measured as a whole at 800x1344. Of all other
  networks, only the backbone is measured: at 512x2048 for segmentation, and at 224x224 for the rest
  ([details](benchmarks/README.md)).
* **Starts from**: the weights that the config names. [published_weights.md](published_weights.md) lists the share of a backbone
  that the `timm:` weights fill. "random weights" means that the config names none; comments of some configs say which to take.
"""
# The script replaces the table between these lines of README.
BEGIN, END = "<!-- choices: tools/model_zoo.py -->\n", "<!-- /choices -->"
# README's backbones, and their rows in docs/published_weights.md: name and source.
SHARES = {
    "FLatten-Swin-T": ("FLattenSwin tiny", "swin_tiny_patch4_window7_224"),
    "iViT-T": ("iViT tiny", "caformer_s18"),
    "HyLiSANet-S": ("LiSANet hybrid-small", "caformer_s36"),
    "LiSANet-S": ("LiSANet small", "pvt_v2_b3"),
}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help="folder of the clone (default: this one)"
    )
    return parser.parse_args(argv)


def shipped_configs(root: Path) -> list[Path]:
    """Return all configs except the bases and the demos."""
    paths = sorted((root / "configs").rglob("*.py"), key=lambda path: (len(path.parts), path))
    return [path for path in paths if "_base_" not in path.parts and not path.stem.endswith("_demo")]


def read_shares(page: str) -> dict[str, str]:
    found = dict.fromkeys(("MILA-T", "H-ViT3-T"), "100 % (the authors' files)")
    for name, (backbone, source) in SHARES.items():
        row = re.search(rf"^\| {re.escape(backbone)} \| `{re.escape(source)}` \| ([\d.]+)% ", page, re.MULTILINE)
        if row is None:
            raise ValueError(f"docs/published_weights.md has no row of {backbone} and {source}")
        found[name] = f"{float(row[1]):.0f} % (`timm:{source}`)"
    return found


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.log import import_quietly
    from research import model_zoo

    if not args.verbose:
        import_quietly()
    docs, readme = args.root / "docs", args.root / "README.md"
    measured = model_zoo.read_measured(docs / "benchmarks", ("backbones", "detectors", "training"))
    shares = read_shares((docs / "published_weights.md").read_text(encoding="utf-8"))
    entries = model_zoo.evaluate(args.root, shipped_configs(args.root))
    (docs / "model_zoo.md").write_text(model_zoo.to_markdown(entries, measured, INTRODUCTION), encoding="utf-8")
    (args.root / "configs" / "metafile.yml").write_text(model_zoo.to_metafile(entries), encoding="utf-8")
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = model_zoo.choices_to_markdown(entries, measured, shares)
    readme.write_text(before + BEGIN + table + END + after, encoding="utf-8")
    print(f"{len(entries)} configs written to docs/model_zoo.md, configs/metafile.yml and README.md")


if __name__ == "__main__":
    cli.run(main, parse_args())
