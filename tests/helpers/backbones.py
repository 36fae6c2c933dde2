"""A narrow config of every backbone: one row per host, and more where an option changes the path."""

from typing import Any

NARROW = dict(depths=(1, 1, 1, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
PLAIN = dict(depth=2, channels=32, num_heads=2)
MOBILE = dict(scale=0.25)
LEVIT = dict(depths=(1, 1, 1), channels=(32, 48, 64), num_heads=(1, 2, 2))
SMALL_LEVIT = dict(depths=(1, 1), channels=(32, 48), num_heads=(1, 2), downsample="subsample", mlp_conv=None)


def _pyramid(kind: str, base: str, changes: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return dict(type=kind, arch=dict(base=base, **{**NARROW, **(changes or {})}), image_size=64, **options)


def _plain(kind: str, base: str, **options: Any) -> dict[str, Any]:
    return dict(type=kind, arch=dict(base=base, **PLAIN), out_indices=(0, 1), **options)


CASES = {
    "lisanet-hybrid": _pyramid("LiSANet", "hybrid-small", drop_path_rate=0.1),
    "lisanet": _pyramid("LiSANet", "small"),
    "lisanet-bn": _pyramid("LiSANet", "small", norm_cfg=dict(type="BN")),
    "lisanet-isotropic": _pyramid("LiSANet", "isotropic", dict(depths=(2,), channels=(32,), num_heads=(2,))),
    "lisanet-v1": _pyramid("LiSANet", "v1-tiny"),
    "lcnet": dict(type="LCNet", arch=MOBILE),
    "lcnet-vit": dict(type="CastlingLCNetViT", arch=dict(base="small", **MOBILE), drop_path_rate=0.1),
    "esnet": dict(type="ESNet", arch=dict(base="x0.75", **MOBILE)),
    "esnet-vit": dict(type="CastlingESNetViT", arch=dict(base="small", **MOBILE)),
    "levit": _pyramid("CastlingLeViT", "128", LEVIT),
    "levit-own-attention": _pyramid(
        "CastlingLeViT", "128", SMALL_LEVIT, attention=dict(type="LeViTAttention", head_dims=16), out_indices=(0, 1)
    ),
    "castling-deit": _plain("CastlingDeiT", "tiny", image_size=64),
    "castling-vit": _plain("CastlingViT", "base", image_size=64),
    "castling-mvitv2": dict(
        type="CastlingMViTv2", arch=dict(base="tiny", depths=(1, 1, 2, 1), channels=16), image_size=64
    ),
    "flatten-swin": _pyramid("FLattenSwin", "tiny", dict(depths=(1, 1, 2, 1))),
    "flatten-swin-windows": _pyramid("FLattenSwin", "tiny", attention=dict(window=5), attn_type="LLLL"),
    "flatten-pvt": _pyramid("FLattenPVT", "tiny"),
    "flatten-pvt-softmax": _pyramid("FLattenPVT", "tiny", attn_type="SSSS"),
    "flatten-pvtv2": _pyramid("FLattenPVTv2", "b0"),
    "flatten-cswin": _pyramid("FLattenCSwin", "tiny", dict(split_sizes=(1, 2, 3, None))),
    "flatten-deit": _plain("FLattenDeiT", "tiny", image_size=64),
    "dinov2": _plain("DINOv2", "small-reg", image_size=56),
    "dinov3": _plain("DINOv3", "small", attention_blocks=(1,)),
    "dinov3-gated": _plain("DINOv3", "small-plus"),
    "ivit": _pyramid("iViT", "tiny", drop_path_rate=0.1),
    "ivit-lisa": _pyramid("iViT", "tiny", attention=dict(type="LiSA", num_patterns=2)),
    "interactive-vit": dict(type="InteractiveViT", arch=dict(base="tiny-16", **PLAIN), image_size=64),
    "mila": dict(type="MILA", arch=dict(base="tiny", **NARROW), drop_path_rate=0.1),
    "h-vit3": dict(type="HViT3", arch=dict(base="tiny", **NARROW)),
    "h-vit3-classifier": dict(type="HViT3", arch=dict(base="tiny", **NARROW), output_norm=False, out_indices=(3,)),
    "vit3": _plain("ViT3", "tiny"),
    "pola-swin": _pyramid("FLattenSwin", "pola-tiny"),
    "pola-pvt": _pyramid("FLattenPVT", "pola-tiny"),
}

# One network per kind: what holds for them is tested on these alone.
KINDS = (
    "lisanet",
    "lisanet-hybrid",
    "flatten-swin",
    "flatten-pvt",
    "flatten-deit",
    "lcnet",
    "castling-mvitv2",
    "h-vit3",
    "dinov3",
)
