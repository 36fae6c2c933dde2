"""Official FLatten files: every key of every model, the official logits, and what is refused."""

import re
from argparse import Namespace

import pytest
import timm
import torch
import torch.nn.functional as F

from helpers import official_flatten as official
from helpers.golden_weights import image, outputs, values
from helpers.networks import matched
from mmlisa.conversion import convert_published
from mmlisa.models import backbones

# name -> family, settings of its layout, arch, millions of parameters of the official code
_SWIN, _CSWIN, _PVT = official.SWIN_TINY, official.CSWIN_TINY, official.PVT_TINY
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
    "pvtv2-b0": ("pvtv2", official.PVTV2_B0, "b0", 3.595),
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


def meta_state(family, settings):
    return {name: torch.empty(shape, device="meta") for name, shape in official.layout(family, **settings).items()}


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
    shapes = official.layout(family, **settings)
    return {name: torch.as_tensor(values(name, list(shape))).double() for name, shape in shapes.items()}


SMALLEST = {"swin": _SWIN, "pvt": _PVT, "pvtv2": official.PVTV2_B0, "cswin": _CSWIN}


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


# timm's names -> the official ones.
OFFICIAL_NAMES = {
    "swin_tiny_patch4_window7_224": [
        (r"^layers\.(\d)\.downsample", lambda m: f"layers.{int(m[1]) - 1}.downsample"),
        (r"^head\.fc", "head"),
    ],
    "pvt_v2_b0": [
        (r"^patch_embed\.", "patch_embed1."),
        (r"^stages\.(\d)\.downsample", lambda m: f"patch_embed{int(m[1]) + 1}"),
        (r"^stages\.(\d)\.blocks", lambda m: f"block{int(m[1]) + 1}"),
        (r"^stages\.(\d)\.norm", lambda m: f"norm{int(m[1]) + 1}"),
        (r"mlp\.dwconv", "mlp.dwconv.dwconv"),
    ],
}


@pytest.mark.parametrize("name", OFFICIAL_NAMES)
def test_official_files_of_the_hosts_convert_as_timms(name):
    with torch.device("meta"):
        timms = timm.create_model(name).state_dict()
    officials = {}
    for key, tensor in timms.items():
        for pattern, replacement in OFFICIAL_NAMES[name]:
            key = re.sub(pattern, replacement, key)
        officials[key] = tensor
    (expected, _), (found, _) = (convert_published(state, head=True) for state in (timms, officials))
    assert found["meta"] == expected["meta"]
    assert {key: tensor.shape for key, tensor in found["state_dict"].items()} == {
        key: tensor.shape for key, tensor in expected["state_dict"].items()
    }


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
