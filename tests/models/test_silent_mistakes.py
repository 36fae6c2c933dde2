"""Mistakes in configs that would change a network without an error are refused by the argument's name."""

import pytest

from mmlisa.models import backbones
from mmlisa.models.attention import build_attention
from mmlisa.models.layers import SepConv, build_norm

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
    dict(arch=dict(ARCH, depths=(1, 1, 1))),
    dict(arch=dict(ARCH, position="cpe")),
    dict(image_size=(32, 32, 32, 32)),
    dict(out_indices=(0, 2)),
    dict(frozen_stages=3),
]


@pytest.mark.parametrize(("name", "options"), OPERATORS)
def test_operators(name, options):
    with pytest.raises(ValueError, match=next(iter(options)).removeprefix("lepe_")):
        build_attention(dict(type=name, **options), 32, 4, (6, 6))


@pytest.mark.parametrize("options", NETWORKS, ids=str)
def test_networks(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        backbones.LiSANet(**{"arch": ARCH, **options})


@pytest.mark.parametrize("options", [dict(depths=(1,)), dict(num_heads=(1, 2, 4))])
def test_stages_of_transformers_behind_convolutional_ones(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        backbones.CastlingLCNetViT(dict(base="small", scale=0.25, **options))


def test_layers():
    for build, name in ((lambda: SepConv(8, 4), "kernel_size"), (lambda: build_norm(dict(type="GN"), 8), "norm_cfg")):
        with pytest.raises(ValueError, match=name):
            build()
