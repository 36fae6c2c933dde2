"""Official FLatten files, by the paper and their checkpoints' layout: every key of every model, and the official logits.

``goldens/official_flatten.npz`` holds the logits of the smallest model of each family, in fp64 with the weights of
``golden_weights.values`` and its image. They come from a second implementation of the networks as plain functions of
their state dicts, independent of the package: one head at a time, one window at a time. The git history keeps it in
tests/helpers/official_flatten.py.
"""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F

from helpers.golden_weights import image, outputs, values
from helpers.networks import matched
from mmlisa.conversion import convert_published
from mmlisa.models import backbones

# Depths, widths and heads of the smallest model of each family.
_SWIN = dict(depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), dims=(96, 192, 384, 768), window=7)
_PVT = dict(depths=(2, 2, 2, 2), heads=(1, 2, 5, 8), dims=(64, 128, 320, 512), mlp=(8, 8, 4, 4))
_PVTV2_B0 = dict(depths=(2, 2, 2, 2), heads=(1, 2, 5, 8), dims=(32, 64, 160, 256), mlp=(8, 8, 4, 4))
_CSWIN = dict(depths=(2, 4, 18, 1), heads=(2, 4, 8, 16), dims=(64, 128, 256, 512), splits=(1, 2, 7, 7))
# name -> family, settings of its layout, arch, millions of parameters of the official code
_SWIN_B = dict(_SWIN, depths=(2, 2, 18, 2), heads=(4, 8, 16, 32), dims=(128, 256, 512, 1024))
_CSWIN_B = dict(_CSWIN, depths=(3, 6, 29, 2), heads=(4, 8, 16, 32), dims=(96, 192, 384, 768))
_AT_384 = dict(grids=(96, 48, 24, 12))
MODELS_17 = {
    "swin-t": ("swin", _SWIN, "tiny", 29.192),
    "swin-s": ("swin", dict(_SWIN, depths=(2, 2, 18, 2)), "small", 50.510),
    "swin-b": ("swin", _SWIN_B, "base", 88.972),  # the authors' page prints 88.973
    "swin-b-384": ("swin", dict(_SWIN_B, window=12, **_AT_384), "base-384", 91.434),
    "pvt-t": ("pvt", _PVT, "tiny", 12.151),
    "pvt-s": ("pvt", dict(_PVT, depths=(3, 4, 6, 3)), "small", 21.670),
    "pvt-m": ("pvt", dict(_PVT, depths=(3, 4, 18, 3)), "medium", 37.242),
    "pvt-l": ("pvt", dict(_PVT, depths=(3, 8, 27, 3)), "large", 50.649),
    "pvtv2-b0": ("pvtv2", _PVTV2_B0, "b0", 3.595),
    "pvtv2-b1": ("pvtv2", _PVT, "b1", 12.931),
    "pvtv2-b2": ("pvtv2", dict(_PVT, depths=(3, 4, 6, 3)), "b2", 22.548),
    "pvtv2-b3": ("pvtv2", dict(_PVT, depths=(3, 4, 18, 3)), "b3", 38.274),
    "pvtv2-b4": ("pvtv2", dict(_PVT, depths=(3, 8, 27, 3)), "b4", 51.837),
    "cswin-t": ("cswin", _CSWIN, "tiny", 21.202),
    "cswin-s": ("cswin", dict(_CSWIN, depths=(2, 4, 32, 2)), "small", 35.452),
    "cswin-b": ("cswin", _CSWIN_B, "base", 74.867),
    "cswin-b-384": ("cswin", dict(_CSWIN_B, splits=(1, 2, 12, 12), **_AT_384), "base-384", 78.369),
}
BACKBONES = {"swin": "FLattenSwin", "pvt": "FLattenPVT", "pvtv2": "FLattenPVTv2", "cswin": "FLattenCSwin"}
BUFFERS = ("relative_position_index", "attn_mask")


def layout(family, *, depths, heads, dims, linear_stages=2, grids=(56, 28, 14, 7), **options):
    """Names and shapes of an official state dict."""
    shapes = {}

    def add(prefix, **tensors):
        for name, shape in tensors.items():
            shapes[f"{prefix}.{name}"] = shape

    def dense(prefix, *weight, bias=True):
        add(prefix, weight=weight)
        if bias:
            add(prefix, bias=weight[:1])

    def norm(prefix, width):
        dense(prefix, width)

    def own(prefix, width, n, head):
        add(prefix, scale=(1, 1, width), positional_encoding=(1, n, width))
        dense(f"{prefix}.dwc", width // head, 1, 5, 5)

    for i, (depth, head, c, grid) in enumerate(zip(depths, heads, dims, grids, strict=True)):
        before = dims[i - 1] if i else 3
        ratio = options.get("mlp", (4,) * 4)[i]
        linear = family in ("pvt", "pvtv2") or i < linear_stages
        if family in ("pvt", "pvtv2"):
            size = (7 if i == 0 else 3) if family == "pvtv2" else (2 if i else 4)
            dense(f"patch_embed{i + 1}.proj", c, before, size, size)
            norm(f"patch_embed{i + 1}.norm", c)
            if family == "pvt":
                shapes[f"pos_embed{i + 1}"] = (1, grid**2, c)
            else:
                norm(f"norm{i + 1}", c)
        elif family == "cswin":
            conv, embed_norm = (
                ("stage1_conv_embed.0", "stage1_conv_embed.2") if i == 0 else (f"merge{i}.conv", f"merge{i}.norm")
            )
            size = 3 if i else 7
            dense(conv, c, before, size, size)
            norm(embed_norm, c)
        elif i == 0:
            dense("patch_embed.proj", c, 3, 4, 4)
            norm("patch_embed.norm", c)
        else:
            dense(f"layers.{i - 1}.downsample.reduction", c, 4 * before, bias=False)
            norm(f"layers.{i - 1}.downsample.norm", 4 * before)
        for j in range(depth):
            block = {"swin": f"layers.{i}.blocks.{j}", "cswin": f"stage{i + 1}.{j}"}.get(family, f"block{i + 1}.{j}")
            norm(f"{block}.norm1", c)
            norm(f"{block}.norm2", c)
            dense(f"{block}.mlp.fc1", c * ratio, c)
            dense(f"{block}.mlp.fc2", c, c * ratio)
            if family == "pvtv2":
                dense(f"{block}.mlp.dwconv.dwconv", c * ratio, 1, 3, 3)
            if family == "cswin":
                dense(f"{block}.qkv", 3 * c, c)
                dense(f"{block}.proj", c, c)
                branches = 1 if linear or i == 3 else 2
                for branch in range(branches):
                    dense(f"{block}.attns.{branch}.get_v", c // branches, 1, 3, 3)
                if linear:
                    own(f"{block}.attns.0", c, grid**2, head)
                continue
            dense(f"{block}.attn.proj", c, c)
            if family == "swin":
                dense(f"{block}.attn.qkv", 3 * c, c)
            else:
                dense(f"{block}.attn.q", c, c)
                dense(f"{block}.attn.kv", 2 * c, c)
            if linear:
                own(f"{block}.attn", c, grid**2, head)
            else:
                window = options["window"]
                shapes[f"{block}.attn.relative_position_bias_table"] = ((2 * window - 1) ** 2, head)
                shapes[f"{block}.attn.relative_position_index"] = (window**2, window**2)
                if j % 2 and grid > window:
                    shapes[f"{block}.attn_mask"] = ((grid // window) ** 2, window**2, window**2)
    if family != "pvtv2":
        norm("norm", dims[-1])
    dense("head", 1000, dims[-1])
    return shapes


def meta_state(family, settings):
    return {name: torch.empty(shape, device="meta") for name, shape in layout(family, **settings).items()}


def parts(checkpoint):
    """The backbone's weights and the head's of a converted classifier."""
    state = checkpoint["state_dict"]
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    return backbone, {name: tensor for name, tensor in state.items() if not name.startswith("backbone.")}


@pytest.mark.parametrize("name", MODELS_17)
def test_every_key_of_every_model(name):
    family, settings, arch, millions = MODELS_17[name]
    state = meta_state(family, settings)
    count = sum(tensor.numel() for key, tensor in state.items() if not key.endswith(BUFFERS))
    assert round(count / 1e6, 3) == millions
    checkpoint, report = convert_published({"model": state}, head=True)
    config = dict(checkpoint["meta"]["backbone"])
    assert config == dict(type=f"mmlisa.{BACKBONES[family]}", arch=arch, out_indices=(3,))
    assert "start fresh" not in report
    backbone, head = parts(checkpoint)
    assert head.keys() == {"head.fc.weight", "head.fc.bias"}
    assert sum(tensor.numel() for tensor in (*backbone.values(), *head.values())) == count


def filled(family, settings):
    """An official state dict with the weights of the golden outputs."""
    shapes = layout(family, **settings)
    return {name: torch.as_tensor(values(name, list(shape))).double() for name, shape in shapes.items()}


SMALLEST = {"swin": _SWIN, "pvt": _PVT, "pvtv2": _PVTV2_B0, "cswin": _CSWIN}


@pytest.mark.parametrize("family", SMALLEST)
def test_converted_weights_give_the_official_logits(family, tmp_path):
    """Through a file with what the authors' training saves beside the weights."""
    state = filled(family, SMALLEST[family])
    averaged = {f"module.{name}": tensor for name, tensor in state.items()}
    other = {name: tensor + 1 for name, tensor in state.items()}
    torch.save({"model": other, "state_dict_ema": averaged, "args": Namespace(lr=1)}, tmp_path / "official.pth")
    checkpoint, _ = convert_published(str(tmp_path / "official.pth"), ema=True, head=True)
    weights, head = parts(checkpoint)
    config = dict(checkpoint["meta"]["backbone"])
    backbone = getattr(backbones, config.pop("type").removeprefix("mmlisa."))(**config).double().eval()
    backbone.load_state_dict(weights)
    with torch.no_grad():
        features = backbone(image(224, 224).double())[-1].mean((2, 3))
        logits = F.linear(features, head["head.fc.weight"], head["head.fc.bias"])[0]
    expected = torch.from_numpy(outputs("official_flatten")[family])
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)


def test_official_pvt_host_as_a_start():
    state = {
        name: tensor
        for name, tensor in filled("pvt", _PVT).items()
        if not name.endswith(("scale", "encoding")) and ".dwc." not in name
    }
    state["cls_token"] = torch.zeros(1, 1, 512, dtype=torch.float64)
    state["pos_embed4"] = torch.cat([torch.zeros(1, 1, 512, dtype=torch.float64), state["pos_embed4"]], dim=1)
    state["block1.0.attn.sr.weight"], state["block1.0.attn.norm.weight"] = torch.zeros(64, 64, 8, 8), torch.zeros(64)
    found = matched(backbones.FLattenPVT("tiny", out_indices=(3,)), state)
    left = {*found.dropped, *found.unused.values()}
    assert left == {"cls_token", "block1.0.attn.sr.weight", "block1.0.attn.norm.weight", "head.weight", "head.bias"}
    assert torch.equal(found.state["stages.3.downsample.position"], state["pos_embed4"][:, 1:])
    assert len(found.fresh) == 8 * 4
