"""What configs set in networks: sizes that no number of parameters tells, operators, and mistakes refused by their name."""

import pytest
import torch
from torch.nn import SyncBatchNorm

import mmlisa
from helpers.backbones import CASES
from mmlisa.models import backbones
from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import SepConv, build_norm
from mmlisa.registry import MODELS

# Channels of a head by the papers; conversion/test_authors_files.py has FLatten's own.
HEADS = dict(
    LiSANet=16, iViT=32, InteractiveViT=64, CastlingDeiT=64, CastlingViT=64, CastlingMViTv2=96, MILA=32, HViT3=32
)
HEADS |= {"ViT3": 64, "ViT3 tiny": 32, "FLattenSwin": 32, "FLattenPVT": 64}
OPERATORS = [
    ("DepthwiseConv", dict(kernel_size=4)),
    ("FocusedLinearAttention", dict(kernel_size=4)),
    ("FocusedLinearAttention", dict(shift=True)),
    ("LiSA", dict(kernel_size=4)),
    ("LiSA", dict(padding="zeros")),
    ("InceptionMixer", dict(attention_heads=4)),
    ("SoftmaxAttention", dict(rpe="none")),
    ("StructureAwareAttention", dict(form="no")),
]
ARCH = dict(base="hybrid-small", depths=(1, 1), channels=(16, 32), num_heads=(1, 2))
ARCH |= dict(strides=(4, 2), mlp_ratios=(4, 4), mixers="CA")
NETWORKS = [
    dict(arch="hybrid-smal"),
    dict(arch=dict(ARCH, dephts=(1, 1))),
    dict(arch=dict(ARCH, mixers="CS")),
    dict(arch=dict(ARCH, mixers="CLL")),
    dict(arch=dict(ARCH, depths=(1, 1, 1))),
    dict(arch=dict(ARCH, position="cpe")),
    dict(image_size=(32, 32, 32, 32)),
    dict(out_indices=(0, 2)),
    dict(frozen_stages=3),
]


@pytest.mark.parametrize("name", sorted(HEADS.keys() & set(backbones.__all__)))
def test_channels_of_a_head(name):
    for arch in getattr(backbones, name).arch_settings:
        resolved = getattr(backbones, name).resolve_arch(arch)
        sizes = [size if isinstance(size, tuple) else (size,) for size in (resolved["channels"], resolved["num_heads"])]
        widths = {width / count for width, count in zip(*sizes, strict=True)}
        assert widths == {HEADS.get(f"{name} {arch}", HEADS[name])}, arch


def test_the_papers_letters_are_one_alphabet():
    for written in ("CCLL", "CCAA"):
        assert backbones.LiSANet.resolve_arch(dict(base="small", mixers=written))["mixers"] == "CCAA"


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


@pytest.mark.parametrize("case", ["ivit", "mila", "vit3", "castling-deit", "flatten-pvt"])
def test_the_convolution_of_enhanced_linear_attention(case):
    """Without it, the operator is plain ReLU attention."""
    network = MODELS.build({**CASES[case], "attention": dict(type="EnhancedLinearAttention")})
    mixers = {n for n, module in network.named_modules() if type(module).__name__ == "EnhancedLinearAttention"}
    convolutions = {n for n, _ in network.named_parameters() if n.endswith("mlp.dwconv.weight")}
    assert mixers
    assert {f"{name.rpartition('.')[0]}.mlp.dwconv.weight" for name in mixers} <= convolutions


@pytest.mark.parametrize("operator", ["TTTAttention", "AgentAttention"])
def test_a_class_token_is_refused_where_it_has_no_place(operator):
    with pytest.raises(ValueError, match=r"class tokens: .* 35 tokens .*, and got 36"):
        MODELS.build({**CASES["flatten-deit"], "attention": dict(type=operator)})(torch.randn(1, 3, 75, 107))


@pytest.mark.parametrize(("name", "options"), OPERATORS)
def test_operators(name, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        build_attention(dict(type=name, **options), 32, 4, (6, 6))


@pytest.mark.parametrize("options", NETWORKS, ids=str)
def test_networks(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        backbones.LiSANet(**{"arch": ARCH, **options})


@pytest.mark.parametrize("options", [dict(depths=(1,)), dict(num_heads=(1, 2, 4))])
def test_stages_of_transformers_behind_convolutional_ones(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        backbones.CastlingLCNetViT(dict(base="small", scale=0.25, **options))


def test_a_number_that_is_a_sequence():
    """Else the last entries would be taken."""
    with pytest.raises(ValueError, match="num_heads"):
        backbones.CastlingESNetViT(dict(base="small", num_heads=(2, 4, 8, 16, 12)))


@pytest.mark.parametrize("attn_type", ["LLS", "LLSX"])
def test_attn_type_must_fit(attn_type):
    with pytest.raises(ValueError, match=f"attn_type='{attn_type}'"):
        backbones.FLattenSwin(attn_type=attn_type)


def test_layers():
    for build, name in ((lambda: SepConv(8, 4), "kernel_size"), (lambda: build_norm(dict(type="GN"), 8), "norm_cfg")):
        with pytest.raises(ValueError, match=name):
            build()
    norms = [build_norm(dict(type="SyncBN", requires_grad=trained), 8) for trained in (True, False)]
    assert [(type(norm), norm.weight.requires_grad) for norm in norms] == [
        (SyncBatchNorm, True),
        (SyncBatchNorm, False),
    ]
    network = backbones.LiSANet(dict(base="small", depths=(1, 1, 1, 1)), norm_cfg=dict(type="SyncBN"))
    assert {type(stage.blocks[0].norm2) for stage in network.stages} == {SyncBatchNorm}
