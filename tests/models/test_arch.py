"""The sizes that the papers' tables give: depths, widths, heads and what else no number of parameters tells."""

import pytest

from mmlisa.models import backbones
from mmlisa.models.arch import parse_mixers

PVT_HEADS, CSWIN_HEADS = (1, 2, 5, 8), (2, 4, 8, 16)
ARCHS = {
    # LiSA, journal version, Tables 2 and 11, heads of 16 channels; the hybrids' first two stages are convolutional.
    ("LiSANet", "small"): dict(
        depths=(2, 4, 12, 4), channels=(64, 128, 320, 384), num_heads=(4, 8, 20, 24), mixers="AAAA"
    ),
    ("LiSANet", "base"): dict(
        depths=(4, 8, 18, 3), channels=(96, 192, 384, 576), num_heads=(6, 12, 24, 36), mixers="AAAA"
    ),
    ("LiSANet", "hybrid-small"): dict(
        depths=(3, 6, 12, 4),
        channels=(64, 128, 320, 384),
        num_heads=(4, 8, 20, 24),
        mixers="CCAA",
        strides=(4, 2, 2, 2),
    ),
    ("LiSANet", "hybrid-base"): dict(
        depths=(3, 12, 18, 3),
        channels=(96, 192, 384, 576),
        num_heads=(6, 12, 24, 36),
        mixers="CCAA",
        mlp_ratios=(4, 4, 3, 3),
    ),
    ("LiSANet", "isotropic"): dict(depths=(12,), channels=(192,), num_heads=(12,), strides=(16,), position="learned"),
    ("LiSANet", "v1-isotropic"): dict(
        depths=(12,), channels=(192,), num_heads=(12,), strides=(16,), position="learned"
    ),
    ("LiSANet", "v1-tiny"): dict(depths=(1, 2, 5, 2), channels=(64, 128, 256, 512), num_heads=(4, 8, 16, 32)),
    ("LiSANet", "v1-small"): dict(depths=(1, 2, 11, 2), channels=(64, 128, 256, 512), num_heads=(4, 8, 16, 32)),
    ("LiSANet", "v1-base"): dict(depths=(2, 3, 16, 3), channels=(96, 192, 384, 768), num_heads=(6, 12, 24, 48)),
    # FLatten, Tables 10 to 15, on Swin's, PVT's, PVTv2's and CSwin's own.
    ("FLattenSwin", "tiny"): dict(depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24), window_size=7, attn_type="AASS"),
    ("FLattenSwin", "small"): dict(depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24), window_size=7, attn_type="AASS"),
    ("FLattenSwin", "base"): dict(depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32), channels=(128, 256, 512, 1024)),
    ("FLattenSwin", "base-384"): dict(depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32), window_size=12, image_size=384),
    ("FLattenPVT", "tiny"): dict(
        depths=(2, 2, 2, 2), num_heads=PVT_HEADS, sr_ratios=(8, 4, 2, 1), mlp_ratios=(8, 8, 4, 4)
    ),
    ("FLattenPVT", "small"): dict(depths=(3, 4, 6, 3), num_heads=PVT_HEADS, attn_type="AAAA"),
    ("FLattenPVT", "medium"): dict(depths=(3, 4, 18, 3), num_heads=PVT_HEADS),
    ("FLattenPVT", "large"): dict(depths=(3, 8, 27, 3), num_heads=PVT_HEADS),
    ("FLattenPVTv2", "b0"): dict(depths=(2, 2, 2, 2), channels=(32, 64, 160, 256), num_heads=PVT_HEADS),
    ("FLattenPVTv2", "b1"): dict(depths=(2, 2, 2, 2), channels=(64, 128, 320, 512), num_heads=PVT_HEADS),
    ("FLattenPVTv2", "b2"): dict(depths=(3, 4, 6, 3), num_heads=PVT_HEADS, mlp_ratios=(8, 8, 4, 4)),
    ("FLattenPVTv2", "b3"): dict(depths=(3, 4, 18, 3), num_heads=PVT_HEADS),
    ("FLattenPVTv2", "b4"): dict(depths=(3, 8, 27, 3), num_heads=PVT_HEADS),
    ("FLattenCSwin", "tiny"): dict(depths=(2, 4, 18, 1), num_heads=CSWIN_HEADS, split_sizes=(1, 2, 7, None)),
    ("FLattenCSwin", "small"): dict(depths=(2, 4, 32, 2), num_heads=CSWIN_HEADS, attn_type="AASS"),
    ("FLattenCSwin", "base"): dict(depths=(3, 6, 29, 2), num_heads=(4, 8, 16, 32), channels=(96, 192, 384, 768)),
    ("FLattenCSwin", "base-384"): dict(depths=(3, 6, 29, 2), split_sizes=(1, 2, 12, None), image_size=384),
    ("FLattenDeiT", "tiny"): dict(depth=12, channels=192, num_heads=3, mlp_ratio=4),
    # iViT, Tables 1 to 4, heads of 32 and 64 channels.
    ("iViT", "tiny"): dict(depths=(3, 3, 9, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16), mixers="CCAA"),
    ("iViT", "small"): dict(
        depths=(3, 12, 18, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16), mixers="CCAA"
    ),
    ("iViT", "base"): dict(
        depths=(3, 12, 18, 3), channels=(96, 192, 384, 576), num_heads=(3, 6, 12, 18), mixers="CCAA"
    ),
    ("InteractiveViT", "tiny-16"): dict(depth=12, channels=192, num_heads=3, patch_size=16, class_token=False),
    ("InteractiveViT", "tiny-8"): dict(depth=12, channels=192, num_heads=3, patch_size=8),
    ("InteractiveViT", "small-16"): dict(depth=12, channels=384, num_heads=6, patch_size=16),
    ("InteractiveViT", "small-8"): dict(depth=12, channels=384, num_heads=6, patch_size=8),
    # Castling-ViT, Tables 2 to 4, on DeiT's, LeViT's and MViTv2's own; the mobile ones' depths, heads and ratios fit its counts.
    ("CastlingDeiT", "tiny"): dict(depth=12, channels=192, num_heads=3, mlp_conv=5, patch_size=16),
    ("CastlingDeiT", "base"): dict(depth=12, channels=768, num_heads=12, mlp_conv=5, mlp_ratio=4),
    ("CastlingViT", "base"): dict(depth=12, channels=768, num_heads=12, mlp_conv=5),
    ("CastlingLeViT", "128"): dict(depths=(4, 4, 4), channels=(128, 256, 384), num_heads=(4, 8, 12), head_dims=16),
    ("CastlingLeViT", "192"): dict(depths=(4, 4, 4), channels=(192, 288, 384), num_heads=(3, 5, 6), head_dims=32),
    ("CastlingLeViT", "256"): dict(depths=(4, 4, 4), channels=(256, 384, 512), num_heads=(4, 6, 8), head_dims=32),
    ("CastlingLeViT", "384"): dict(depths=(4, 4, 4), channels=(384, 512, 768), num_heads=(6, 9, 12), mlp_ratio=2),
    ("CastlingMViTv2", "tiny"): dict(depths=(1, 2, 5, 2), channels=96, num_heads=1, castled=True),
    ("CastlingMViTv2", "small"): dict(depths=(1, 2, 11, 2), channels=96, num_heads=1, mlp_conv=5),
    ("CastlingMViTv2", "base"): dict(depths=(2, 3, 16, 3), channels=96, num_heads=1, mlp_ratio=4),
    ("CastlingLCNetViT", "small"): dict(scale=0.75, depths=(1, 1), num_heads=(8, 16), mlp_ratio=2, mlp_conv=None),
    ("CastlingLCNetViT", "medium"): dict(scale=1.5, depths=(1, 1), num_heads=(8, 16)),
    ("CastlingLCNetViT", "large"): dict(scale=2.0, depths=(1, 1), num_heads=(8, 16)),
    ("CastlingESNetViT", "small"): dict(scale=0.75, depth=2, num_heads=16, mlp_ratio=2, mlp_conv=5),
    ("CastlingESNetViT", "medium"): dict(scale=1.0, depth=2, num_heads=16),
    ("CastlingESNetViT", "large"): dict(scale=1.25, depth=2, num_heads=16),
    # MILA, ViT³ and H-ViT³, heads of 32 channels, 64 in the wider plain ones.
    ("MILA", "tiny"): dict(depths=(2, 4, 8, 4), channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
    ("MILA", "small"): dict(depths=(3, 6, 21, 6), channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
    ("MILA", "base"): dict(depths=(3, 6, 21, 6), channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
    ("HViT3", "tiny"): dict(depths=(1, 3, 9, 4), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
    ("HViT3", "small"): dict(depths=(2, 6, 18, 8), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
    ("HViT3", "base"): dict(depths=(2, 6, 18, 8), channels=(96, 192, 448, 640), num_heads=(3, 6, 14, 20)),
    ("ViT3", "tiny"): dict(depth=12, channels=192, num_heads=6, mlp_ratio=4, class_token=False),
    ("ViT3", "small"): dict(depth=12, channels=384, num_heads=6),
    ("ViT3", "base"): dict(depth=12, channels=768, num_heads=12),
    # PolaFormer, on Swin's and PVT's own.
    ("FLattenSwin", "pola-tiny"): dict(depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24), window_size=7, attn_type="AASS"),
    ("FLattenSwin", "pola-small"): dict(depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24), channels=(96, 192, 384, 768)),
    ("FLattenSwin", "pola-base"): dict(depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32), channels=(128, 256, 512, 1024)),
    ("FLattenSwin", "pola-base-384"): dict(depths=(2, 2, 18, 2), window_size=12, image_size=384, attn_type="AASS"),
    ("FLattenPVT", "pola-tiny"): dict(depths=(2, 2, 2, 2), num_heads=PVT_HEADS, attn_type="AAAA"),
    ("FLattenPVT", "pola-small"): dict(depths=(3, 4, 6, 3), num_heads=PVT_HEADS, mlp_ratios=(8, 8, 4, 4)),
    ("FLattenPVT", "pola-medium"): dict(depths=(3, 4, 18, 3), num_heads=PVT_HEADS),
    ("FLattenPVT", "pola-large"): dict(depths=(3, 8, 27, 3), num_heads=PVT_HEADS),
}
LISA, FIRST, FOCUSED = (
    dict(type="LiSA", num_patterns=8),
    dict(type="LiSA", norm=False, encoding_bias=True),
    dict(type="FocusedLinearAttention"),
)
ANGULAR, POLA = dict(type="LinearAngularAttention", aux=True), dict(type="PolarityAwareAttention")
# The operators: LiSA, l. 440 ("D = 8", Table 3c's 16 in LiSANet-I); iViT's 49 landmarks, 64 in the plain ViTs.
ATTENTION = {
    **{("LiSANet", arch): LISA for arch in ("small", "base", "hybrid-small", "hybrid-base")},
    ("LiSANet", "isotropic"): dict(type="LiSA", num_patterns=16),
    ("LiSANet", "v1-isotropic"): dict(FIRST, num_patterns=16),
    ("LiSANet", "v1-tiny"): dict(FIRST, num_patterns=8),
    ("LiSANet", "v1-small"): dict(FIRST, num_patterns=16),
    ("LiSANet", "v1-base"): dict(FIRST, num_patterns=16),
    **{(name, None): FOCUSED for name in ("FLattenSwin", "FLattenPVT", "FLattenPVTv2", "FLattenDeiT")},
    **{("FLattenSwin", f"pola-{arch}"): POLA for arch in ("tiny", "small", "base", "base-384")},
    **{("FLattenPVT", f"pola-{arch}"): POLA for arch in ("tiny", "small", "medium", "large")},
    ("MILA", None): dict(type="MILAAttention"),
    ("HViT3", None): dict(type="TTTAttention", rotary=True),
    ("ViT3", None): dict(type="TTTAttention"),
    ("FLattenCSwin", None): dict(FOCUSED, lepe_kernel_size=3),
    ("iViT", None): dict(type="InteractiveAttention", landmarks=49),
    ("InteractiveViT", None): dict(type="InteractiveAttention", landmarks=64, qkv_bias=True, proj_bias=True),
    ("CastlingDeiT", None): dict(ANGULAR, residual=True),
    ("CastlingViT", None): dict(ANGULAR, residual=True, conv_size=None),
    ("CastlingMViTv2", None): dict(ANGULAR, residual=True),
    ("CastlingLeViT", "128"): dict(ANGULAR, pooled=True, qkv_bias=False, head_dims=32),
    ("CastlingLeViT", None): dict(ANGULAR, pooled=True, qkv_bias=False, head_dims=64),
    ("CastlingLCNetViT", None): dict(ANGULAR, pooled=True, qkv_bias=False),
    ("CastlingESNetViT", None): dict(ANGULAR, pooled=True),
}
CASES = [
    (name, arch)
    for name in backbones.__all__
    for arch in getattr(backbones, name).arch_settings
    if name not in ("LCNet", "ESNet")  # whose archs are a scale, and the ratios of test_networks_by_formula.py
]


@pytest.mark.parametrize(("name", "arch"), CASES)
def test_arch(name, arch):
    resolved = getattr(backbones, name).resolve_arch(arch)
    expected = ARCHS[name, arch]
    assert {key: resolved[key] for key in expected} == expected
    assert resolved["attention"] == (ATTENTION.get((name, arch)) or ATTENTION[name, None])


def test_the_papers_letters_are_one_alphabet():
    assert parse_mixers("mixers", "CCLL", 4, "AC") == parse_mixers("mixers", "CCAA", 4, "AC") == "CCAA"
    assert parse_mixers("attn_type", "LASS", 4, "AS") == "AASS"


def test_a_network_of_the_papers_letters_is_the_same():
    options = dict(depths=(1, 1), channels=(16, 32), num_heads=(1, 2))
    first, second = (
        backbones.LiSANet(dict(base="hybrid-small", strides=(4, 2), mlp_ratios=(4, 4), mixers=mixers, **options))
        for mixers in ("CL", "CA")
    )
    assert [type(m) for m in first.modules()] == [type(m) for m in second.modules()]
    assert {"SepConv", "LiSA"} <= {type(m).__name__ for m in first.modules()}


def test_a_network_has_settings_of_its_own():
    given = dict(base="hybrid-small", attention=dict(type="LiSA", num_patterns=4))
    for arch in ("hybrid-small", given):
        backbones.LiSANet.resolve_arch(arch)["attention"]["num_patterns"] = 1
    assert backbones.LiSANet.resolve_arch("hybrid-small")["attention"]["num_patterns"] == 8
    assert given["attention"]["num_patterns"] == 4
