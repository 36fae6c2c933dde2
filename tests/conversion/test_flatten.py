"""Official FLatten files: every key of every model, the official logits, and what is refused."""

import re
import runpy
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F

from helpers import official_flatten as official
from mmlisa.checkpoints import load_checkpoint
from mmlisa.conversion import convert_classifier
from mmlisa.registry import MODELS

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / "tools" / "convert_checkpoint.py"

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


def run_tool(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", [str(TOOL), "flatten", *map(str, args)])
    runpy.run_path(str(TOOL), run_name="__main__")


BACKBONES = {"swin": "FLattenSwin", "pvt": "FLattenPVT", "pvtv2": "FLattenPVTv2", "cswin": "FLattenCSwin"}
BUFFERS = ("relative_position_index", "attn_mask")


def meta_state(family, settings):
    return {name: torch.empty(shape, device="meta") for name, shape in official.layout(family, **settings).items()}


def build(config):
    options = dict(config)
    return MODELS.get(options.pop("type"))(**options)


def backbone_weights(conversion):
    return {k.removeprefix("backbone."): v for k, v in conversion.state_dict.items() if k.startswith("backbone.")}


@pytest.mark.parametrize("name", MODELS_17)
def test_every_key_of_every_model(name):
    family, settings, arch, millions = MODELS_17[name]
    state = meta_state(family, settings)
    count = sum(tensor.numel() for key, tensor in state.items() if not key.endswith(BUFFERS))
    assert round(count / 1e6, 3) == millions
    conversion = convert_classifier({"model": state}, "flatten")
    assert conversion.official
    assert conversion.backbone == dict(type=f"mmlisa.{BACKBONES[family]}", arch=arch, out_indices=(3,))
    assert not conversion.untrained
    assert not conversion.missing
    assert all(key.endswith(BUFFERS) for key in conversion.dropped)
    assert sum(tensor.numel() for tensor in conversion.state_dict.values()) == count


def random_state(family, settings, dtype=torch.float64):
    """An official state dict with every entry at random, of sizes that keep the activations of order one."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in official.layout(family, **settings).items():
        tensor = torch.randn(shape, generator=generator, dtype=dtype) * (0.2 if len(shape) == 4 else 0.05)
        state[name] = tensor + 1 if "norm" in name and name.endswith("weight") else tensor
    return state


FORWARDS = {
    "swin": (official.swin, official.SWIN_TINY),
    "pvt": (lambda *args, **kw: official.pvt(*args, second_version=False, **kw), official.PVT_TINY),
    "pvtv2": (lambda *args, **kw: official.pvt(*args, second_version=True, **kw), official.PVTV2_B0),
    "cswin": (official.cswin, official.CSWIN_TINY),
}


@pytest.mark.parametrize("family", FORWARDS)
def test_converted_weights_give_the_official_logits(family):
    forward, settings = FORWARDS[family]
    state = random_state(family, settings)
    conversion = convert_classifier({"model": {f"module.{name}": tensor for name, tensor in state.items()}}, "flatten")
    backbone = build(conversion.backbone).double().eval()
    backbone.load_state_dict(backbone_weights(conversion))
    image = torch.randn(1, 3, 224, 224, dtype=torch.float64)
    with torch.no_grad():
        features = backbone(image)[-1].mean((2, 3))
        logits = F.linear(features, conversion.state_dict["head.fc.weight"], conversion.state_dict["head.fc.bias"])
        torch.testing.assert_close(logits, forward(image, state, **settings), rtol=1e-10, atol=1e-10)


def test_classifier_and_detector_load_it(tmp_path, monkeypatch, capsys):
    """mmpretrain's classifier takes the whole file, a backbone what is below its prefix; through the command line."""
    forward, settings = FORWARDS["pvtv2"]
    state = random_state("pvtv2", settings, torch.float32)
    torch.save(
        {"model": random_state("pvtv2", settings, torch.float16), "state_dict_ema": state, "args": Namespace(lr=1)},
        tmp_path / "src.pth",
    )
    run_tool(monkeypatch, tmp_path / "src.pth", tmp_path / "dst.pth", "--ema")
    printed = capsys.readouterr().out
    assert "official weights of mmlisa.FLattenPVTv2 'b0'" in printed
    assert "missing: 0 keys" in printed

    from mmpretrain.registry import MODELS as CLASSIFIERS

    saved = load_checkpoint(tmp_path / "dst.pth")
    pretrained = dict(type="Pretrained", checkpoint=str(tmp_path / "dst.pth"))
    classifier = CLASSIFIERS.build(
        dict(
            type="mmpretrain.ImageClassifier",
            backbone=saved["meta"]["backbone"],
            neck=dict(type="mmpretrain.GlobalAveragePooling"),
            head=dict(type="mmpretrain.LinearClsHead", num_classes=1000, in_channels=256),
        )
    ).eval()
    classifier.load_state_dict(saved["state_dict"])
    image = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        expected = forward(image, state, **settings)
        logits = classifier.head(classifier.extract_feat(image))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    backbone = build(dict(type="FLattenPVTv2", arch="b0", init_cfg=dict(pretrained, prefix="backbone.")))
    backbone.init_weights()
    assert torch.equal(backbone.stages[3].blocks[1].mlp.fc2.weight, state["block4.1.mlp.fc2.weight"])


def test_hosts_of_timm_as_a_start():
    """What a host shares with FLatten arrives in its place, and the rest is named."""
    for name, image_classes in (
        ("swin_tiny_patch4_window7_224", 1000),
        ("pvt_v2_b0", 1000),
        ("deit_tiny_patch16_224", 1000),
    ):
        host = timm.create_model(name, num_classes=image_classes).eval()
        conversion = convert_classifier(host.state_dict(), "flatten")
        assert not conversion.official
        assert conversion.untrained
        assert all(
            key.split(".attn.")[1].split(".")[0] in ("dwc", "scale", "positional_encoding")
            for key in conversion.untrained
        )
        backbone = build(conversion.backbone)
        result = backbone.load_state_dict(backbone_weights(conversion), strict=False)
        assert sorted(result.missing_keys) == sorted(conversion.untrained)
        assert not result.unexpected_keys
        assert "to fine-tune from" in conversion.report()


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
    timms = timm.create_model(name).state_dict()
    official_ones = {}
    for key, tensor in timms.items():
        for pattern, replacement in OFFICIAL_NAMES[name]:
            key = re.sub(pattern, replacement, key)
        official_ones[key] = tensor
    expected, found = convert_classifier(timms, "flatten"), convert_classifier({"model": official_ones}, "flatten")
    assert found.backbone == expected.backbone
    assert found.untrained == expected.untrained
    assert not found.missing
    assert list(found.state_dict) == list(expected.state_dict)
    assert all(found.state_dict[key] is expected.state_dict[key] for key in expected.state_dict if ".qkv." not in key)


def test_official_pvt_host_as_a_start():
    state = {
        n: t
        for n, t in random_state("pvt", official.PVT_TINY).items()
        if not n.endswith(("scale", "encoding")) and ".dwc." not in n
    }
    state["cls_token"] = torch.zeros(1, 1, 512)
    state["pos_embed4"] = torch.cat([torch.zeros(1, 1, 512), state["pos_embed4"]], dim=1)
    state["block1.0.attn.sr.weight"], state["block1.0.attn.norm.weight"] = torch.zeros(64, 64, 8, 8), torch.zeros(64)
    conversion = convert_classifier(state, "flatten")
    assert {"cls_token", "block1.0.attn.sr.weight", "block1.0.attn.norm.weight"} <= set(conversion.dropped)
    assert torch.equal(conversion.state_dict["backbone.stages.3.downsample.position"], state["pos_embed4"][:, 1:])
    assert len(conversion.untrained) == 8 * 4


def test_foreign_files_are_named():
    resnet = timm.create_model("resnet18").state_dict()
    with pytest.raises(ValueError, match=r"none of the known networks.*bn1\.bias"):
        convert_classifier(resnet, "flatten")
    other_size = meta_state("swin", dict(_SWIN, depths=(2, 2, 4, 2)))
    with pytest.raises(
        ValueError,
        match=r"another size than .*FLattenSwin 'tiny'.*blocks\.4\.norm1\.weight: no counterpart",
    ):
        convert_classifier(other_size, "flatten")
    deeper = meta_state("swin", dict(_SWIN, depths=(2, 2, 7, 2)))
    with pytest.raises(ValueError, match=r"1[0-9] of the file have no place: .*layers\.2\.blocks\.6.*no such block"):
        convert_classifier(deeper, "flatten")
    lcnet = timm.create_model("lcnet_050").state_dict()
    with pytest.raises(ValueError, match=r"LCNet weights have no place in FLattenSwin"):
        convert_classifier(lcnet, "flatten")
    with pytest.raises(ValueError, match="state_dict_ema"):
        convert_classifier({"model": {}}, "flatten", ema=True)


def test_incomplete_and_reshaped_files_are_refused():
    state = meta_state("cswin", _CSWIN)
    cut = {n: t for n, t in state.items() if n != "stage3.4.attns.1.get_v.weight"}
    with pytest.raises(ValueError, match=r"FLattenCSwin 'tiny'.*: 1 of .*stages\.2\.blocks\.4\.attn\.lepe\.1\.weight"):
        convert_classifier(cut, "flatten")
    wide = dict(state, **{"stage1.0.attns.0.dwc.weight": torch.empty(32, 1, 3, 3, device="meta")})
    with pytest.raises(ValueError, match=r"dwc\.weight: 32x1x5x5 here, 32x1x3x3 in the file"):
        convert_classifier(wide, "flatten")
    without_head = {n: t for n, t in state.items() if not n.startswith("head")}
    assert convert_classifier(without_head, "flatten").missing == ("head.fc.weight", "head.fc.bias")


class _Code:
    def __reduce__(self):
        return print, ("code ran",)


def test_command_line_refuses_code_and_truncated_files(tmp_path, monkeypatch, capsys):
    torch.save({"model": _Code()}, tmp_path / "code.pth")
    torch.save({"model": {"a": torch.zeros(1000)}}, tmp_path / "whole.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:2000])
    for name, message in (("code", "could run code"), ("cut", "truncated"), ("absent", "does not exist")):
        with pytest.raises(SystemExit, match="2"):
            run_tool(monkeypatch, tmp_path / f"{name}.pth", tmp_path / "dst.pth")
        printed = capsys.readouterr()
        assert message in printed.err
        assert "code ran" not in printed.out
    assert not (tmp_path / "dst.pth").exists()
