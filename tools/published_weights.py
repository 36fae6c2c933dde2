"""Print the share of each backbone that timm's published weights fill, a table of docs/published_weights.md on the site.

Names and shapes are compared; nothing is downloaded.
"""

import argparse

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
HEADER = "| backbone | source | parameters | tensors | starts fresh |\n|---|---|---|---|---|\n"


def to_row(kind: str, arch: str, name: str) -> str:
    """Return the line of a backbone and a model of timm, both built on the meta device."""
    import timm
    import torch

    from mmlisa.conversion import match, recognise, rename
    from mmlisa.models import backbones

    with torch.device("meta"):
        backbone, state = getattr(backbones, kind)(arch), timm.create_model(name).state_dict()
    matched = match(rename(state, recognise(state), kind), backbone)
    fresh = dict.fromkeys(".".join("*" if p.isdigit() else p for p in n.split(".")[:-1]) for n in matched.fresh)
    shown = ", ".join(f"`{name}`" for name in list(fresh)[:5]) + (
        f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
    )
    count, total = len(matched.state), len(backbone.state_dict())
    return f"| {kind} {arch} | `{name}` | {matched.share:.1%} | {count} of {total} | {shown or 'nothing'} |\n"


def to_markdown() -> str:
    """Return the table of all :data:`PAIRS`."""
    return HEADER + "".join(to_row(*pair) for pair in PAIRS)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(to_markdown(), end="")
