"""Sizes that no number of parameters tells: tests/research/test_paper_tables.py and tests/conversion show the others."""

import pytest

import mmlisa
from mmlisa.models import backbones
from mmlisa.models.arch import parse_mixers

# Channels of a head by the papers; conversion/test_authors_files.py has FLatten's own.
HEADS = dict(
    LiSANet=16, iViT=32, InteractiveViT=64, CastlingDeiT=64, CastlingViT=64, CastlingMViTv2=96, MILA=32, HViT3=32
)
HEADS |= {"ViT3": 64, "ViT3 tiny": 32, "FLattenSwin": 32, "FLattenPVT": 64}


@pytest.mark.parametrize(
    ("name", "arch"),
    [(name, arch) for name in backbones.__all__ if name in HEADS for arch in getattr(backbones, name).arch_settings],
)
def test_channels_of_a_head(name, arch):
    resolved = getattr(backbones, name).resolve_arch(arch)
    channels, counts = (
        size if isinstance(size, tuple) else (size,) for size in (resolved["channels"], resolved["num_heads"])
    )
    widths = {width / count for width, count in zip(channels, counts, strict=True)}
    assert widths == {HEADS.get(f"{name} {arch}", HEADS[name])}


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
