"""Weights under OpenMMLab's names: the libraries' converters are undone, and their networks' maps come out of ours."""

import re

import pytest
import torch
from mmdet.models.backbones.pvt import PyramidVisionTransformer, PyramidVisionTransformerV2
from mmdet.models.backbones.swin import SwinTransformer
from mmengine.model import BaseModule, ModuleList
from mmpretrain.models import LeViT, MViT
from mmpretrain.models import SwinTransformer as PretrainSwin
from mmpretrain.models import VisionTransformer as PretrainViT
from mmseg.models.backbones import VisionTransformer as SegViT
from torch import nn

from helpers.networks import randomised
from mmlisa.conversion import convert_published
from mmlisa.models import backbones
from mmlisa.registry import MODELS

SWIN = dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24))
PVT = dict(embed_dims=32, num_layers=[2, 2, 2, 2])
NETWORKS = {
    "mmdet's Swin": (
        lambda: SwinTransformer(**SWIN, drop_path_rate=0.0),
        dict(type="FLattenSwin", arch="tiny", attn_type="SSSS"),
    ),
    "mmpretrain's Swin": (
        lambda: PretrainSwin("tiny", img_size=256),
        dict(type="FLattenSwin", arch="tiny", attn_type="SSSS", out_indices=(3,)),
    ),
    "PVT": (
        lambda: PyramidVisionTransformer(pretrain_img_size=256, embed_dims=64, num_layers=[2, 2, 2, 2]),
        dict(type="FLattenPVT", arch="tiny", attn_type="SSSS", image_size=256),
    ),
    "PVTv2": (
        lambda: PyramidVisionTransformerV2(**PVT),
        dict(type="FLattenPVTv2", arch="b0", attn_type="SSSS"),
    ),
    "mmpretrain's ViT": (
        lambda: PretrainViT("deit-t", img_size=256, out_type="featmap"),
        dict(type="FLattenDeiT", arch="tiny", image_size=256, out_type="featmap", attention=dict(type="SoftmaxAttention")),
    ),
    "mmpretrain's LeViT": (
        lambda: LeViT("256", img_size=256, out_indices=(0, 1, 2), drop_path_rate=0.0),
        dict(type="CastlingLeViT", arch=dict(base="256", downsample="subsample", mlp_conv=None), image_size=256,
             attention=dict(type="LeViTAttention", head_dims=32)),
    ),
    "mmpretrain's MViTv2": (
        lambda: MViT("tiny", img_size=256),  # with more outputs, it passes normed maps to its next stage
        dict(type="CastlingMViTv2", arch=dict(base="tiny", castled=False), image_size=256, out_indices=(3,)),
    ),
    "mmseg's ViT": (
        lambda: SegViT((256, 256), embed_dims=192, num_heads=3, out_indices=(11,), final_norm=True, patch_bias=True),
        dict(type="FLattenDeiT", arch="tiny", image_size=256, out_type="featmap", attention=dict(type="SoftmaxAttention")),
    ),
}  # fmt: skip

# Norms whose epsilon in the libraries is not that of the authors' code, which ours have, and the authors' epsilon.
EPSILONS = {
    "PVT": (r"attn\.norm$|^layers\.\d\.0\.norm", 1e-5),
    "PVTv2": (r"attn\.norm$|^layers\.\d\.0\.norm", 1e-5),
    "mmseg's ViT": ("", 1e-6),
}


@pytest.mark.parametrize(("name", "size"), [*((name, (256, 256)) for name in NETWORKS), ("mmdet's Swin", (227, 301))])
def test_maps_are_the_librarys(name, size, tmp_path):
    build, config = NETWORKS[name]
    theirs = build()
    randomised(theirs)  # train() of these networks returns None
    pattern, epsilon = EPSILONS.get(name, ("no norm", 0))
    for path, module in theirs.named_modules():
        if isinstance(module, nn.LayerNorm) and re.search(pattern, path):
            module.eps = epsilon
    file = tmp_path / "detector.pth"
    torch.save({"state_dict": {f"backbone.{name}": tensor for name, tensor in theirs.state_dict().items()}}, file)
    theirs.double()
    ours = MODELS.build(dict(config, init_cfg=dict(type="mmlisa.PublishedWeights", source=str(file), min_matched=0.99)))
    ours.init_weights()
    ours.double().eval()
    image = torch.randn(1, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        pairs = list(zip(ours(image), theirs(image), strict=True))
    for a, b in pairs:
        assert b.std() > 0.1
        if min(a.shape[2:]) > 7 or len(pairs) == 1:  # mmdet shifts the windows of a map that has only one
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


class Detector(BaseModule):
    """A backbone of a few hundred weights, and a head of more, which MMEngine initializes."""

    def __init__(self, backbone, init_cfg=None):
        super().__init__(init_cfg)
        normal = dict(type="Normal", layer="Linear", std=0.01)
        self.backbone, self.head = backbone, ModuleList([nn.Linear(2, 2) for _ in range(400)], init_cfg=normal)


def test_a_detectors_init_cfg_loads_backbone_and_heads(tmp_path):
    """From a library's detector the matching entries, from one of ours all; the tool keeps its heads, too."""
    theirs = Detector(SwinTransformer(**SWIN))
    randomised(theirs)
    torch.save({"state_dict": theirs.state_dict()}, tmp_path / "theirs.pth")
    published = dict(type="mmlisa.PublishedWeights", source=str(tmp_path / "theirs.pth"))
    ours = Detector(backbones.FLattenSwin("tiny"), init_cfg=published)
    ours.init_weights()
    head = {f"head.{name}": tensor for name, tensor in theirs.head.state_dict().items()}
    for name, tensor in head.items():
        assert torch.equal(ours.state_dict()[name], tensor)
    assert torch.equal(
        ours.backbone.stages[2].blocks[3].mlp.fc1.weight, theirs.backbone.stages[2].blocks[3].ffn.layers[0][0].weight
    )
    torch.save({"state_dict": ours.state_dict()}, tmp_path / "ours.pth")
    twin = Detector(backbones.FLattenSwin("tiny"), init_cfg=dict(published, source=str(tmp_path / "ours.pth")))
    twin.init_weights()
    assert all(torch.equal(tensor, twin.state_dict()[name]) for name, tensor in ours.state_dict().items())
    checkpoint, report = convert_published(str(tmp_path / "theirs.pth"))
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.FLattenSwin", arch="tiny"), report
    assert {name for name in checkpoint["state_dict"] if not name.startswith("backbone.")} == head.keys()
    assert torch.equal(checkpoint["state_dict"]["backbone.norm0.weight"], theirs.backbone.norm0.weight)
