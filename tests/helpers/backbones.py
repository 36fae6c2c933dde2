"""A narrow config of every backbone: one row per host, and more where an option changes the path."""

NARROW = dict(depths=(1, 1, 1, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
CASES = {
    "lisanet-hybrid": dict(type="LiSANet", arch=dict(base="hybrid-small", **NARROW), image_size=64, drop_path_rate=0.1),
    "lisanet": dict(type="LiSANet", arch=dict(base="small", **NARROW), image_size=64),
    "lisanet-bn": dict(type="LiSANet", arch=dict(base="small", **NARROW), image_size=64, norm_cfg=dict(type="BN")),
    "lisanet-isotropic": dict(
        type="LiSANet", arch=dict(base="isotropic", depths=(2,), channels=(32,), num_heads=(2,)), image_size=64
    ),
    "lisanet-v1": dict(type="LiSANet", arch=dict(base="v1-tiny", **NARROW), image_size=64),
    "lcnet": dict(type="LCNet", arch=dict(scale=0.25)),
    "lcnet-vit": dict(type="CastlingLCNetViT", arch=dict(base="small", scale=0.25), drop_path_rate=0.1),
    "esnet": dict(type="ESNet", arch=dict(base="x0.75", scale=0.25)),
    "esnet-vit": dict(type="CastlingESNetViT", arch=dict(base="small", scale=0.25)),
    "esnet-vit-lisa": dict(
        type="CastlingESNetViT",
        arch=dict(base="small", scale=0.25),
        attention=dict(type="LiSA", num_patterns=2),
        image_size=64,
    ),
    "levit": dict(
        type="CastlingLeViT",
        arch=dict(base="128", depths=(1, 1, 1), channels=(32, 48, 64), num_heads=(1, 2, 2)),
        image_size=64,
    ),
    "levit-own-attention": dict(
        type="CastlingLeViT",
        arch=dict(
            base="128", depths=(1, 1), channels=(32, 48), num_heads=(1, 2), downsample="subsample", mlp_conv=None
        ),
        attention=dict(type="LeViTAttention", head_dims=16),
        out_indices=(0, 1),
        image_size=64,
    ),
    "castling-deit": dict(
        type="CastlingDeiT",
        arch=dict(base="tiny", depth=2, channels=32, num_heads=2),
        out_indices=(0, 1),
        image_size=64,
    ),
    "castling-vit": dict(
        type="CastlingViT", arch=dict(base="base", depth=2, channels=32, num_heads=2), out_indices=(0, 1), image_size=64
    ),
    "castling-mvitv2": dict(
        type="CastlingMViTv2", arch=dict(base="tiny", depths=(1, 1, 2, 1), channels=16), image_size=64
    ),
    "flatten-swin": dict(
        type="FLattenSwin", arch=dict(base="tiny", **{**NARROW, "depths": (1, 1, 2, 1)}), image_size=64
    ),
    "flatten-swin-windows": dict(
        type="FLattenSwin", arch=dict(base="tiny", **NARROW), image_size=64, attention=dict(window=5), attn_type="LLLL"
    ),
    "flatten-pvt": dict(type="FLattenPVT", arch=dict(base="tiny", **NARROW), image_size=64),
    "flatten-pvt-softmax": dict(type="FLattenPVT", arch=dict(base="tiny", **NARROW), image_size=64, attn_type="SSSS"),
    "flatten-pvtv2": dict(type="FLattenPVTv2", arch=dict(base="b0", **NARROW), image_size=64),
    "flatten-cswin": dict(
        type="FLattenCSwin",
        arch=dict(base="tiny", **{**NARROW, "num_heads": (1, 2, 2, 3), "split_sizes": (1, 2, 3, None)}),
        image_size=64,
    ),
    "flatten-deit": dict(
        type="FLattenDeiT", arch=dict(base="tiny", depth=2, channels=32, num_heads=2), out_indices=(0, 1), image_size=64
    ),
    "ivit": dict(type="iViT", arch=dict(base="tiny", **NARROW), image_size=64, drop_path_rate=0.1),
    "ivit-lisa": dict(
        type="iViT", arch=dict(base="tiny", **NARROW), image_size=64, attention=dict(type="LiSA", num_patterns=2)
    ),
    "interactive-vit": dict(
        type="InteractiveViT", arch=dict(base="tiny-16", depth=2, channels=32, num_heads=2), image_size=64
    ),
    "mila": dict(type="MILA", arch=dict(base="tiny", **NARROW), drop_path_rate=0.1),
    "h-vit3": dict(type="HViT3", arch=dict(base="tiny", **NARROW)),
    "h-vit3-classifier": dict(type="HViT3", arch=dict(base="tiny", **NARROW), output_norm=False, out_indices=(3,)),
    "vit3": dict(type="ViT3", arch=dict(base="tiny", depth=2, channels=32, num_heads=2), out_indices=(0, 1)),
    "pola-swin": dict(type="FLattenSwin", arch=dict(base="pola-tiny", **NARROW), image_size=64),
    "pola-pvt": dict(type="FLattenPVT", arch=dict(base="pola-tiny", **NARROW), image_size=64),
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
)
