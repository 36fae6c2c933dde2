"""Write docs/published_weights.md, the entries of published weights that each backbone loads.

``python tools/published_weights.py`` compares names and shapes, and downloads nothing.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

# Backbone, arch, timm's name of the source.
PAIRS = (
    ("FLattenSwin", "tiny", "swin_tiny_patch4_window7_224"),
    ("FLattenSwin", "small", "swin_small_patch4_window7_224"),
    ("FLattenSwin", "base", "swin_base_patch4_window7_224"),
    *(("FLattenPVTv2", f"b{i}", f"pvt_v2_b{i}") for i in range(5)),
    ("FLattenDeiT", "tiny", "deit_tiny_patch16_224"),
    ("CastlingDeiT", "tiny", "deit_tiny_patch16_224"),
    ("CastlingDeiT", "base", "deit_base_patch16_224"),
    ("CastlingViT", "base", "vit_base_patch16_224.mae"),
    ("InteractiveViT", "tiny-16", "deit_tiny_patch16_224"),
    ("InteractiveViT", "small-16", "deit_small_patch16_224"),
    ("iViT", "tiny", "caformer_s18"),
    ("iViT", "small", "caformer_s36"),
    ("iViT", "base", "caformer_m36"),
    *(("CastlingLeViT", width, f"levit_{width}") for width in ("128", "192", "256", "384")),
    *(("CastlingMViTv2", arch, f"mvitv2_{arch}") for arch in ("tiny", "small", "base")),
    ("LCNet", "x1.0", "lcnet_100"),
    ("CastlingLCNetViT", "small", "lcnet_075"),
    ("CastlingLCNetViT", "medium", "lcnet_150"),
    ("LiSANet", "small", "pvt_v2_b2"),
    ("LiSANet", "small", "pvt_v2_b3"),
    ("LiSANet", "hybrid-small", "caformer_s18"),
    ("LiSANet", "hybrid-small", "caformer_s36"),
    ("LiSANet", "hybrid-small", "convformer_s36"),
    ("LiSANet", "hybrid-base", "caformer_m36"),
)
# The text below the table is written by hand; the script keeps it.
HEADER = """# Published weights

A backbone starts from the published weights of its host ([table](#weights-of-the-hosts)) with one line in a config:

```python
init_cfg = dict(type="mmlisa.PublishedWeights", source="timm:caformer_s18.sail_in22k_ft_in1k")
```

`source` may also be a file or an address. The log of the run lists what was taken over, what keeps its initial values, and why: a
shape that differs (`960x320 here, 1280x320 in the file`), or no counterpart in the file.
`mmlisa convert SRC DST --to BACKBONE ARCH` writes the converted weights into a file; without `--to`, it chooses the backbone that
matches the most parameters. It also takes LCNet, ESNet and whole PicoDet detectors of PaddleDetection (`.pdparams`, `.npz`),
CSwin and PVT in their authors' naming, and official FLatten.

Checkpoints of mmdetection, mmsegmentation and mmpretrain with Swin, PVT, PVTv2, DeiT, ViT, LeViT or MViTv2 fit as they are. As
`init_cfg` of a whole detector or segmentor, `PublishedWeights` also takes over neck and heads: mmdetection's Mask R-CNN of Swin-T
becomes one of FLatten-Swin-T, in which only the layers of the new attention start from their initial values.

```python
model = dict(init_cfg=dict(type="mmlisa.PublishedWeights", source="mask_rcnn_swin-t.pth"), backbone=dict(init_cfg=None))
```

## Weights of MILA and ViT³ themselves

These files hold the networks themselves: classifiers with their heads, and whole detectors and segmentors with necks and heads,
under the MIT licence. A browser downloads them; save each under the name in the table, in the folder `data`.
`mmlisa.create_model`, `mmlisa.PublishedWeights` and `mmlisa convert SRC DST` take them as they are. A file of
another size or family is refused. [More](newer.md#start-from-the-authors-weights).

| file | network | the authors' result |
|---|---|---|
"""
HOSTS = """
PolaFormer's weights (PVT-T, PVT-S, Swin-T, -S, -B; 78.8, 81.9, 82.6, 83.6 and 83.8 % top-1) are at
[huggingface.co/ZachMeng/PolaFormer](https://huggingface.co/ZachMeng/PolaFormer).

## Weights of the hosts

The table shows the share of a backbone that a source fills, in parameters and in tensors; tensors include the statistics of batch
norms. In a config, write `timm:` before the source. In the last column, `*` stands for the number of a stage or block.
`python tools/published_weights.py` writes the table from names and shapes of the weights.

| backbone | source | parameters | tensors | starts fresh |
|---|---|---|---|---|
"""

AFTER = "\nLiSANet takes"


def own_rows() -> list[str]:
    from mmlisa.conversion.addresses import PUBLISHED_FILES

    return [f"| [`{file.name}`]({file.address}) | {file.network} | {file.scores} |\n" for file in PUBLISHED_FILES]


def row(kind: str, arch: str, name: str) -> str:
    import timm
    import torch

    from mmlisa.conversion import carry_over
    from mmlisa.models import backbones

    with torch.device("meta"):
        backbone, state = getattr(backbones, kind)(arch), timm.create_model(name).state_dict()
    carried = carry_over(backbone, state)
    fresh = dict.fromkeys(".".join("*" if p.isdigit() else p for p in n.split(".")[:-1]) for n in carried.fresh)
    shown = ", ".join(f"`{name}`" for name in list(fresh)[:5]) + (
        f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
    )
    count, total = len(carried.state_dict), len(backbone.state_dict())
    return f"| {kind} {arch} | `{name}` | {carried.share:.1%} | {count} of {total} | {shown or 'nothing'} |\n"


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parents[1] / "docs" / "published_weights.md"
    parser.add_argument("--out", type=Path, default=default, help="file to write (default: %(default)s)")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    _, *after = args.out.read_text().split(AFTER, 1) if args.out.exists() else ("",)
    hosts = HOSTS + "".join(row(*pair) for pair in PAIRS)
    args.out.write_text(HEADER + "".join(own_rows()) + hosts + "".join(AFTER + text for text in after))
    print(f"written to {args.out}")


if __name__ == "__main__":
    cli.run(main, parse_args())
