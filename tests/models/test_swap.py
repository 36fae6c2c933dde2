"""A swapped network: its weights are the first one's, and only its attention is another."""

import pickle

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

import mmlisa
from helpers.networks import randomised
from mmlisa.errors import UserError
from mmlisa.models.backbones import DINOv2, DINOv3
from mmlisa.models.swap import agreement
from mmlisa.models.timm_backbone import TimmBackbone

NARROW = dict(depth=2, channels=48, num_heads=2, layer_scale=1.0)
EXACT = dict(type="CellAttention", window=9)
COARSE = dict(type="CellAttention", window=2, cells=2)
IMAGE = torch.randn(1, 3, 112, 126, generator=torch.Generator().manual_seed(0))


def vit(name="vit_small_patch14_dinov2", **options):
    return randomised(timm.create_model(name, depth=2, embed_dim=48, num_heads=2, **options)).eval()


NETWORKS = {
    "ours": lambda: randomised(DINOv2(dict(base="small", **NARROW))).eval(),
    "rotary": lambda: randomised(DINOv3(dict(base="small", **NARROW))).eval(),
    "timm": lambda: vit("vit_small_patch14_reg4_dinov2", dynamic_img_size=True),
    "backbone of timm": lambda: randomised(
        TimmBackbone(
            "vit_small_patch16_224", depth=2, embed_dim=48, num_heads=2, dynamic_img_size=True, out_indices=(1,)
        )
    ).eval(),
    "in a detector": lambda: nn.Sequential(randomised(DINOv2(dict(base="small", **NARROW))).eval()),
}


def outputs(network, image=IMAGE):
    with torch.no_grad():
        y = network(image)
    return y if isinstance(y, torch.Tensor) else y[-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_attention_alone_is_another(name):
    network = NETWORKS[name]()
    before = outputs(network)
    exact, coarse = mmlisa.swap(network, EXACT), mmlisa.swap(network, COARSE)
    torch.testing.assert_close(outputs(exact), before, rtol=1e-4, atol=1e-4)
    assert (outputs(coarse) - before).abs().max() > 1e-3
    assert torch.equal(outputs(network), before)
    assert {id(p) for p in coarse.parameters()} == {id(p) for p in network.parameters()}
    assert torch.equal(outputs(pickle.loads(pickle.dumps(coarse))), outputs(coarse))


def test_features_agree_by_their_differences_from_the_mean():
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(2, 6, 5, 4, generator=generator) + 100
    mean = reference.flatten(2).mean(2)[..., None, None]
    assert float(agreement(mean + 3 * (reference - mean), reference)) == pytest.approx(1, abs=1e-4)
    assert float(agreement(2 * mean - reference, reference)) == pytest.approx(-1, abs=1e-4)
    assert abs(float(agreement(mean + torch.randn(2, 6, 5, 4, generator=generator), reference))) < 0.5


def test_a_network_of_timm_takes_each_size_in_turn():
    network = vit(dynamic_img_size=True)
    exact = mmlisa.swap(network, EXACT)
    for size in ((112, 56), (56, 112), (112, 56)):
        image = F.interpolate(IMAGE, size=size)
        torch.testing.assert_close(outputs(exact, image), outputs(network, image), rtol=1e-4, atol=1e-4)


def test_some_blocks():
    network = NETWORKS["ours"]()
    swapped = mmlisa.swap(network, COARSE, blocks=[-1])
    assert [type(stage.blocks[0].attn).__name__ for stage in swapped.stages] == ["SoftmaxAttention", "CellAttention"]
    with pytest.raises(UserError, match=r"blocks=\[2\]"):
        mmlisa.swap(network, blocks=[2])


def test_parameters_of_the_operator_are_named():
    with pytest.warns(UserWarning, match="FocusedLinearAttention has parameters that start untrained: .*scale"):
        swapped = mmlisa.swap(NETWORKS["ours"](), dict(type="FocusedLinearAttention"))
    outputs(swapped)


@pytest.mark.parametrize(
    ("network", "attention", "message"),
    [
        (lambda: nn.Linear(2, 2), None, "Linear has no softmax attention"),
        (lambda: timm.create_model("vit_small_patch16_dinov3", depth=1), None, r"mmlisa\.DINOv3"),
        (lambda: vit("vit_small_patch16_224", qk_norm=True), None, "q_norm, k_norm"),
        (NETWORKS["ours"], dict(type="LeViTAttention", head_dims=8), "projection qkv"),
        (NETWORKS["rotary"], dict(type="LiSA"), "rotary"),
    ],
)
def test_what_cannot_be_swapped(network, attention, message):
    with pytest.raises(UserError, match=message):
        mmlisa.swap(network(), attention)
