"""Each host, with its own attention and the weights of timm or of an OpenMMLab library, gives the library's features."""

import re

import pytest
import timm
import torch
import torch.nn.functional as F
from mmdet.models.backbones.pvt import PyramidVisionTransformer, PyramidVisionTransformerV2
from mmdet.models.backbones.swin import SwinTransformer
from mmpretrain.models import LeViT, MViT
from mmpretrain.models import SwinTransformer as PretrainSwin
from mmpretrain.models import VisionTransformer as PretrainViT
from mmseg.models.backbones import VisionTransformer as SegViT
from torch import nn

from helpers.networks import randomised
from mmlisa.conversion import match, recognise
from mmlisa.conversion.renaming import rename_heads
from mmlisa.models import backbones
from mmlisa.registry import MODELS

_WIDTHS = dict(depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8))
_NARROW = dict(_WIDTHS, channels=(16, 32, 64, 128))
_PLAIN = dict(base="tiny", depth=2, channels=32, num_heads=2)
# timm interpolates positions in another way: images of (64, 96), or a little less, need none.
_VIT = dict(depth=2, num_heads=2, embed_dim=32, img_size=(64, 96), dynamic_img_size=True, dynamic_img_pad=True)
_SOFTMAX = dict(attention=dict(type="SoftmaxAttention"), image_size=(64, 96))
# The smallest networks that our backbones extend: timm's with its options; ours; sizes of images that both take.
HOSTS = {
    "swin": ("swin_tiny_patch4_window7_224", dict(_WIDTHS, embed_dim=16, strict_img_size=False),
             dict(type="FLattenSwin", arch=dict(base="tiny", **_NARROW), attn_type="SSSS", out_indices=(3,)),
             [(224, 224), (448, 448)]),  # where windows do not divide the map, timm pads after the shift, Swin before
    "pvtv2": ("pvt_v2_b0", dict(embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8)),
              dict(type="FLattenPVTv2", arch=dict(base="b0", **_NARROW), attn_type="SSSS", out_indices=(3,)),
              [(64, 64), (100, 167)]),
    "deit": ("deit_tiny_patch16_224", _VIT, dict(type="FLattenDeiT", arch=_PLAIN, **_SOFTMAX), [(64, 96), (60, 90)]),
    "deit3": ("deit3_small_patch16_224", dict(_VIT, init_values=1.0, no_embed_class=False),
              dict(type="FLattenDeiT", arch=_PLAIN, **_SOFTMAX), [(64, 96)]),
    "vit": ("vit_tiny_patch16_224", _VIT,
            dict(type="CastlingDeiT", arch=dict(_PLAIN, mlp_conv=None), out_type="cls_token", **_SOFTMAX), [(60, 90)]),
    "caformer": ("caformer_s18", {},
                 dict(type="iViT", arch="tiny", output_norm=False,
                      attention=dict(landmarks=None, mix_before=False, mix_after=False)),
                 [(64, 64), (77, 101)]),
    "levit": ("levit_128s", dict(img_size=96),
              dict(type="CastlingLeViT", image_size=96, attention=dict(type="LeViTAttention", head_dims=16),
                   arch=dict(base="128", depths=(2, 3, 4), num_heads=(4, 6, 8), downsample="subsample", mlp_conv=None)),
              [(96, 96)]),
    "mvitv2": ("mvitv2_tiny", dict(img_size=96),
               dict(type="CastlingMViTv2", arch=dict(base="tiny", castled=False), image_size=96, out_indices=(3,)),
               [(96, 96)]),
    "lcnet": ("lcnet_050", {}, dict(type="LCNet", arch="x0.5"), [(96, 96), (67, 101)]),
}  # fmt: skip


def features(theirs: nn.Module, image: torch.Tensor, last: torch.Tensor) -> list[torch.Tensor]:
    """timm's features of all stages where it has them, else its last ones, in the form of our ``last`` ones."""
    if type(theirs).__name__ in ("EfficientNet", "MetaFormer"):
        return theirs.forward_intermediates(image, intermediates_only=True)[-4:]
    x = theirs.forward_features(image)
    if last.ndim == 2:  # a class token
        return [x[:, 0]]
    if type(theirs).__name__ == "SwinTransformer":
        return [x.permute(0, 3, 1, 2)]
    return [x[:, -last[0, 0].numel() :].mT.unflatten(2, last.shape[2:]) if x.ndim == 3 else x]


@pytest.mark.parametrize(("host", "size"), [(name, size) for name, host in HOSTS.items() for size in host[3]])
def test_parity_with_timm(host, size):
    """In fp64, which shows epsilons, and with random statistics and weights."""
    name, options, config, _ = HOSTS[host]
    options = dict(options, img_size=size) if host == "swin" else options  # it decides which maps are a single window
    ours = MODELS.build(dict(config, type=f"mmlisa.{config['type']}")).double()
    theirs = randomised(timm.create_model(name, **options)).double()
    found = match(theirs.state_dict(), ours)
    assert not found.fresh
    ours.eval().load_state_dict(found.state)
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        maps = ours(image)
        expected = features(theirs, image, maps[-1])
    for one, other in zip(maps[-len(expected) :], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8 * other.abs().max().item())


@pytest.mark.parametrize("size", [(288, 512), (224, 256), (160, 352)])  # 18x32 = 24²; 14x16 + 1 = 15²
def test_positions_of_a_square_on_a_grid_that_is_none(size):
    """A picture of the column stays one, also where a square has as many positions as the grid."""
    with torch.device("meta"):
        deit = timm.create_model("deit_tiny_patch16_224").state_dict()
        levit = timm.create_model("levit_128").state_dict()
    columns, height, width = torch.arange(14.0).repeat(14), size[0] // 16, size[1] // 16
    deit["pos_embed"] = torch.cat([torch.tensor([-9.0]), columns])[None, :, None].repeat(1, 1, 192)
    position = match(deit, backbones.CastlingDeiT("tiny", image_size=size)).state["stem.position"]
    assert position[0, 0, 0] == -9
    expected = F.interpolate(columns.view(1, 1, 14, 14), size=(height, width), mode="bicubic")[0, 0]
    torch.testing.assert_close(position[0, 1:, 0].view(height, width), expected, rtol=0, atol=1e-4)
    name = "stages.0.blocks.0.attn.attention_biases"
    levit[name] = columns.expand(4, -1)
    arch = dict(base="128", downsample="subsample", mlp_conv=None)
    ours = backbones.CastlingLeViT(arch, attention=dict(type="LeViTAttention", head_dims=16), image_size=size)
    biases = match(levit, ours).state[name.replace("attention_biases", "bias.attention_biases")]
    expected = torch.linspace(0, 13, width).expand(4, height, width)
    torch.testing.assert_close(biases.view(4, height, width), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["vit_base_patch16_clip_224", "vit_small_patch14_reg4_dinov2", "cait_xxs24_224", "vit_tiny_r_s16_p8_224"]
)
def test_networks_with_deits_names_that_compute_something_else(name):
    with torch.device("meta"):
        state, ours = timm.create_model(name).state_dict(), backbones.CastlingDeiT("tiny")
    with pytest.raises(ValueError, match="are not those of DeiT or ViT"):
        match(state, ours)


def test_transposed_matrices_are_refused():
    """As PaddlePaddle saves them; square ones would be taken as they are."""
    with torch.device("meta"):
        state, ours = timm.create_model("deit_tiny_patch16_224").state_dict(), backbones.CastlingDeiT("tiny")
    state = {name: tensor.T if tensor.ndim == 2 else tensor for name, tensor in state.items()}
    with pytest.raises(ValueError, match=r"transposed: .*attn\.qkv\.weight is 192x576 in the file and 576x192 here"):
        match(state, ours)


def test_both_heads_of_levit_are_left_out():
    names = ["backbone.a", "head.linear.weight", "head.bn.weight", "head_dist.linear.weight", "head_dist.bn.weight"]
    assert rename_heads(dict.fromkeys(names, torch.ones(1))) == {}


def test_other_families_and_widths():
    with torch.device("meta"):
        resnet = timm.create_model("resnet18").state_dict()
        caformer = timm.create_model("caformer_s18").state_dict()
        wide = timm.create_model("swin_small_patch4_window7_224", embed_dim=48).state_dict()
    with pytest.raises(ValueError, match=r"none of the known networks.*Swin"):
        recognise(resnet)
    with pytest.raises(ValueError, match="no place in FLattenSwin"):
        match(caformer, backbones.FLattenSwin())
    found = match(wide, backbones.FLattenSwin())
    assert found.share < 0.01
    assert "of another shape, 288x96 here, 144x48 in the file: stages.*.blocks.*.attn.qkv.weight" in found.report()


@pytest.mark.parametrize(
    ("name", "arch", "share"), [("pvt_v2_b3", "small", 0.13), ("caformer_s36", "hybrid-small", 0.19)]
)
def test_lisa_keeps_the_value_and_output_of_another_attention(name, arch, share):
    """Query and key stay fresh, because LiSA's are unit vectors."""
    theirs = randomised(timm.create_model(name)).state_dict()
    ours = backbones.LiSANet(arch)
    before = {n: t.clone() for n, t in ours.state_dict().items()}
    found = match(theirs, ours)
    assert found.share >= share, found.report()
    ours.load_state_dict(found.state, strict=False)
    attention, block = ours.stages[2].blocks[7].attn, "stages.2.blocks.7."
    mixer = f"{block}attn." if name.startswith("pvt") else f"{block}token_mixer."
    joint = theirs[f"{mixer}kv.weight"] if name.startswith("pvt") else theirs[f"{mixer}qkv.weight"]
    assert torch.equal(attention.qkv.weight[640:], joint[-320:])
    assert torch.equal(attention.qkv.weight[:640], before[f"{block}attn.qkv.weight"][:640])
    assert torch.equal(attention.proj.weight, theirs[f"{mixer}proj.weight"])
    with torch.device("meta"):  # stands in for a GPU, on which MMEngine initialises models
        other = backbones.LiSANet(arch)
    assert match(theirs, other).state[f"{block}attn.qkv.weight"].is_meta


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
