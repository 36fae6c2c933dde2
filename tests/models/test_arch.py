"""The sizes that the papers' tables give: depths, widths, heads and what else no number of parameters tells."""

import pytest

import mmlisa
from mmlisa.models import backbones
from mmlisa.models.arch import parse_mixers

PVT_HEADS = (1, 2, 5, 8)
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
    # FLatten; conversion/test_flatten.py has the shapes of every other network of it.
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
LISA, FIRST = dict(type="LiSA", num_patterns=8), dict(type="LiSA", norm=False, encoding_bias=True)
ANGULAR, POLA = dict(type="LinearAngularAttention", aux=True), dict(type="PolarityAwareAttention")
# The operators: LiSA, l. 440 ("D = 8", Table 3c's 16 in LiSANet-I); iViT's 49 landmarks, 64 in the plain ViTs.
ATTENTION = {
    **{("LiSANet", arch): LISA for arch in ("small", "base", "hybrid-small", "hybrid-base")},
    ("LiSANet", "isotropic"): dict(type="LiSA", num_patterns=16),
    ("LiSANet", "v1-isotropic"): dict(FIRST, num_patterns=16),
    ("LiSANet", "v1-tiny"): dict(FIRST, num_patterns=8),
    ("LiSANet", "v1-small"): dict(FIRST, num_patterns=16),
    ("LiSANet", "v1-base"): dict(FIRST, num_patterns=16),
    ("FLattenDeiT", None): dict(type="FocusedLinearAttention"),
    **{("FLattenSwin", f"pola-{arch}"): POLA for arch in ("tiny", "small", "base", "base-384")},
    **{("FLattenPVT", f"pola-{arch}"): POLA for arch in ("tiny", "small", "medium", "large")},
    ("MILA", None): dict(type="MILAAttention"),
    ("HViT3", None): dict(type="TTTAttention", rotary=True),
    ("ViT3", None): dict(type="TTTAttention"),
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


@pytest.mark.parametrize(("name", "arch"), ARCHS)
def test_arch(name, arch):
    resolved = getattr(backbones, name).resolve_arch(arch)
    expected = ARCHS[name, arch]
    assert {key: resolved[key] for key in expected} == expected
    assert resolved["attention"] == (ATTENTION.get((name, arch)) or ATTENTION[name, None])


def test_the_papers_letters_are_one_alphabet():
    assert parse_mixers("mixers", "CCLL", 4, "AC") == parse_mixers("mixers", "CCAA", 4, "AC") == "CCAA"
    assert parse_mixers("attn_type", "LASS", 4, "AS") == "AASS"


def test_a_network_has_settings_of_its_own():
    given = dict(base="hybrid-small", attention=dict(type="LiSA", num_patterns=4))
    for arch in ("hybrid-small", given):
        backbones.LiSANet.resolve_arch(arch)["attention"]["num_patterns"] = 1
    assert backbones.LiSANet.resolve_arch("hybrid-small")["attention"]["num_patterns"] == 8
    assert given["attention"]["num_patterns"] == 4


def test_channels_and_strides_for_a_neck():
    assert mmlisa.channels("mmlisa.LiSANet", "hybrid-small", (1, -1)) == [128, 384]
    assert mmlisa.strides("CastlingLeViT", "128", (0, 2)) == [16, 64]
    assert mmlisa.channels("LiSANet", dict(base="small", channels=(8, 16, 40, 48)), (3,)) == [48]
