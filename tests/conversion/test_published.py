"""``init_cfg=dict(type='mmlisa.PublishedWeights')``: one line, any source, what happened in the log."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

from helpers.networks import randomised
from mmlisa import create_model
from mmlisa.checkpoints import CheckpointError, load_checkpoint
from mmlisa.conversion import PublishedWeights, convert_published, known_sources, matching
from mmlisa.models.backbones import CastlingLCNetViT, FLattenDeiT, LCNet, LiSANet

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs():
    return randomised(timm.create_model("lcnet_050")).state_dict()


def source(path, content) -> dict:
    torch.save(content, path)
    return dict(type="mmlisa.PublishedWeights", source=str(path))


def build(init_cfg) -> nn.Module:
    backbone = LCNet("x0.5", init_cfg=init_cfg)
    backbone.init_weights()
    return backbone


WRAPPINGS = {
    "plain": lambda state: state,
    "model": lambda state: {"model": state, "optimizer": {}, "epoch": 3},
    "parallel": lambda state: {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}},
    "prefix": lambda state: {f"model.{name}": tensor for name, tensor in state.items()},
    "detector": lambda state: {
        "state_dict": {f"backbone.{n}": t for n, t in state.items()} | {"neck.w": torch.ones(1)}
    },
    "half": lambda state: {n: t.half() if t.is_floating_point() else t for n, t in state.items()},
    "bfloat16": lambda state: {n: t.bfloat16() if t.is_floating_point() else t for n, t in state.items()},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_files_however_they_are_wrapped(tmp_path, theirs, wrapping):
    ours = build(source(tmp_path / "w.pth", WRAPPINGS[wrapping](theirs)))
    tolerance = {"half": 1e-3, "bfloat16": 1e-2}.get(wrapping, 0)
    torch.testing.assert_close(ours.stem[0].weight, theirs["conv_stem.weight"], rtol=tolerance, atol=0)
    last, name = ours.stages[3].downsample[1].conv_pw.weight, "blocks.5.1.conv_pw.weight"
    torch.testing.assert_close(last, theirs[name], rtol=tolerance, atol=1e-6 * bool(tolerance))


def test_the_weights_that_mmengine_averaged(tmp_path, theirs):
    """Its hook exchanges the two: ``ema_state_dict`` has the weights without averaging, and a count."""
    plain = {f"module.{name}": tensor + 1 for name, tensor in theirs.items()} | {"steps": torch.tensor(5)}
    config = source(tmp_path / "ema.pth", {"state_dict": theirs, "ema_state_dict": plain})
    assert torch.equal(build(dict(config, ema=True)).stem[0].weight, theirs["conv_stem.weight"])


@pytest.mark.parametrize("key", ["state_dict_ema", "model_ema"])
def test_averaged_weights(tmp_path, theirs, key):
    averaged = {f"module.{name}": tensor + 1 for name, tensor in theirs.items()}
    config = source(tmp_path / "ema.pth", {"state_dict": theirs, key: averaged})
    assert torch.equal(build(dict(config, ema=True)).stem[0].weight, theirs["conv_stem.weight"] + 1)
    assert torch.equal(build(config).stem[0].weight, theirs["conv_stem.weight"])
    with pytest.raises(ValueError, match="no averaged weights"):
        build(dict(source(tmp_path / "plain.pth", {"model": theirs}), ema=True))


def test_it_is_loaded_after_everything_else_and_said_what_starts_fresh(tmp_path, theirs, monkeypatch):
    """A related network takes what fits."""
    lines = []
    monkeypatch.setattr("mmlisa.conversion.published.print_log", lambda line, **_: lines.append(line))
    config = source(tmp_path / "w.pth", theirs)
    backbone = CastlingLCNetViT(dict(base="small", scale=0.5), init_cfg=config)
    fresh = backbone.stages[2].blocks[0].attn.qkv.weight.clone()
    backbone.init_weights()
    assert torch.equal(backbone.stages[1].downsample[0].conv_pw.weight, theirs["blocks.2.0.conv_pw.weight"])
    assert torch.equal(backbone.stages[2].blocks[0].attn.qkv.weight, fresh)
    assert "of the parameters carried over" in lines[0]
    assert "start fresh, no counterpart in the file: stages.*.blocks.*.norm1.weight" in lines[0]


def test_timm_sources(theirs, monkeypatch):
    """Through timm's own download, which is not used here: random weights stand in for it."""
    seen = []

    def create(name, pretrained):
        seen.append((name, pretrained))
        model = timm.models.create_model("lcnet_050")
        model.load_state_dict(theirs)
        return model

    monkeypatch.setattr("mmlisa.conversion.published.timm.create_model", create)
    monkeypatch.setattr("mmlisa.conversion.published._check_connection", lambda name: None)
    ours = build(dict(type="mmlisa.PublishedWeights", source="timm:lcnet_050.ra2_in1k"))
    assert seen == [("lcnet_050.ra2_in1k", True)]
    assert torch.equal(ours.stem[0].weight, theirs["conv_stem.weight"])
    assert "timm:lcnet_050.ra2_in1k" in known_sources()
    assert "timm:caformer_s18.sail_in22k_ft_in1k" in known_sources()


def test_unknown_and_offline_sources_name_the_closest(monkeypatch):
    with pytest.raises(ValueError, match=r"no such weights; the closest are .*timm:lcnet_050"):
        build(dict(type="mmlisa.PublishedWeights", source="timm:lcnet_055"))

    attempts = []

    def offline(*_, **__):
        attempts.append(1)
        raise OSError("no route to host")

    def download(*_, **__):
        raise AssertionError("the hub's client would try for minutes")

    monkeypatch.setattr("mmlisa.conversion.published.getproxies", dict)
    monkeypatch.setattr("socket.create_connection", offline)
    monkeypatch.setattr("mmlisa.conversion.published.timm.create_model", download)
    with pytest.raises(ConnectionError, match=r"cannot be reached \(no route to host\).*give source=FILE"):
        build(dict(type="mmlisa.PublishedWeights", source="timm:lcnet_050.ra2_in1k"))
    assert len(attempts) == 1
    with pytest.raises(FileNotFoundError, match="nowhere"):
        build(dict(type="mmlisa.PublishedWeights", source="nowhere.pth"))


def test_bad_files(tmp_path, theirs):
    broken = dict(theirs, **{"conv_stem.weight": theirs["conv_stem.weight"] * torch.nan})
    with pytest.raises(CheckpointError, match="not finite"):
        build(source(tmp_path / "nan.pth", broken))
    with pytest.raises(ValueError, match="no place in FLattenDeiT"):
        FLattenDeiT(init_cfg=source(tmp_path / "lcnet.pth", theirs)).init_weights()
    with pytest.raises(ValueError, match="does not fit LCNet"):
        PublishedWeights(str(tmp_path / "lcnet.pth"), min_carried=0.5)(LCNet("x2.0"))
    content = (tmp_path / "lcnet.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=r"cut\.pth"):
        build(dict(type="mmlisa.PublishedWeights", source=str(tmp_path / "cut.pth")))


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_paddles_files_run_no_code(tmp_path):
    path = tmp_path / "bad.pdparams"
    path.write_bytes(pickle.dumps({"conv1.conv.weight": Malicious(tmp_path / "ran")}))
    with pytest.raises(CheckpointError, match="could run code"):
        build(dict(type="mmlisa.PublishedWeights", source=str(path)))
    assert not (tmp_path / "ran").exists()


def paddle_names(state) -> dict[str, np.ndarray]:
    """LCNet in PaddleDetection's naming, written down from its code."""
    arrays = {}
    for name, tensor in state.items():
        parts = name.split(".")
        if name.startswith("conv_stem"):
            new = "conv1.conv.weight"
        elif parts[0] == "bn1":
            new = f"conv1.bn.{parts[1]}"
        elif parts[0] == "blocks":
            stage, block = int(parts[1]), int(parts[2])
            stage, block = (3, block + 2) if stage == 4 else (min(stage, 4), block)
            layer = {"conv_dw": "dw_conv.conv", "bn1": "dw_conv.bn", "conv_pw": "pw_conv.conv", "bn2": "pw_conv.bn"}
            inner = layer.get(parts[3], {"conv_reduce": "se.conv1", "conv_expand": "se.conv2"}.get(parts[4]))
            new = f"blocks{stage + 2}.{block}.{inner}.{parts[-1]}"
        else:
            continue
        if not new.endswith("num_batches_tracked"):
            arrays[new.replace("running_mean", "_mean").replace("running_var", "_variance")] = tensor.numpy()
    return arrays


@pytest.mark.parametrize("suffix", ["pdparams", "npz"])
def test_lcnet_in_paddles_naming(tmp_path, theirs, suffix):
    arrays, path = paddle_names(theirs), tmp_path / f"lcnet.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays)
    else:
        path.write_bytes(pickle.dumps({**arrays, "StructuredToParameterName@@": {"a": "b"}}, protocol=4))
    ours = build(dict(type="mmlisa.PublishedWeights", source=str(path)))
    expected = build(source(tmp_path / "timm.pth", theirs)).state_dict()
    for name, tensor in ours.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, expected[name]), name


TOOL = Path(__file__).parents[2] / "tools" / "convert_checkpoint.py"


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True)


def test_tool_recognises_the_family_and_the_size(tmp_path, theirs):
    torch.save(theirs, tmp_path / "timm.pth")
    done = run(tmp_path / "timm.pth", tmp_path / "ours.pth")
    assert "for LCNet 'x0.5'" in done.stdout, done.stderr
    checkpoint = load_checkpoint(tmp_path / "ours.pth")
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.LCNet", arch="x0.5")
    loaded = LCNet("x0.5", init_cfg=dict(type="Pretrained", checkpoint=str(tmp_path / "ours.pth"), prefix="backbone."))
    loaded.init_weights()
    assert torch.equal(loaded.stem[0].weight, theirs["conv_stem.weight"])


def test_tool_converts_for_another_backbone_or_says_why_not(tmp_path, theirs, monkeypatch):
    torch.save(theirs, tmp_path / "timm.pth")
    checkpoint, report = convert_published(str(tmp_path / "timm.pth"), to=("CastlingLCNetViT", "small"))
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.CastlingLCNetViT", arch="small")
    assert "of another shape" in report
    for target, message in (("FLattenSwin", "no place in FLattenSwin"), ("Nothing", "must be one of")):
        with pytest.raises(ValueError, match=message):
            convert_published(str(tmp_path / "timm.pth"), to=(target, "tiny"))
    done = run(tmp_path / "none.pth", tmp_path / "ours.pth")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "ours.pth").exists()


def test_a_forgotten_config_is_named(tmp_path):
    done = run("inflate", tmp_path / "image.pth", tmp_path / "video.pth")
    assert done.returncode == 2
    assert "inflate IMAGE VIDEO_CONFIG DST" in done.stderr


@pytest.mark.parametrize(
    "files",
    [("caformer", "timm:x"), ("flatten", "timm:x"), ("inflate", "timm:x", "classifier_lisanet_i_60e_something_v2.py")],
)
def test_every_conversion_takes_the_sources_and_the_averaged_weights_of_the_help(files, tmp_path, monkeypatch):
    import convert_checkpoint

    seen = []
    monkeypatch.setattr("mmlisa.conversion.read_source", lambda *arguments: seen.append(arguments) or {})
    with pytest.raises(ValueError, match=r"holds no weights|do not fit"):
        convert_checkpoint.main(convert_checkpoint.parse_args([*files, str(tmp_path / "ours.pth"), "--ema"]))
    assert seen == [("timm:x", True)]


@pytest.mark.parametrize("share", [1.5, -0.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=r"min_carried=.* from 0 to 1"):
        PublishedWeights("timm:x", min_carried=share)


def test_weights_that_fill_the_whole_backbone_are_enough(tmp_path, theirs):
    ours = build(dict(source(tmp_path / "w.pth", theirs), min_carried=1.0))
    assert torch.equal(ours.stem[0].weight, theirs["conv_stem.weight"])


def test_a_source_is_read_once(tmp_path, monkeypatch):
    model, reads = create_model("lcnet_x0_25", num_classes=3), []
    torch.save({"state_dict": model.state_dict()}, tmp_path / "own.pth")
    monkeypatch.setattr(
        "mmlisa.conversion.published.load_checkpoint", lambda path: reads.append(path) or load_checkpoint(path)
    )
    other = create_model("lcnet_x0_25", num_classes=3, pretrained=tmp_path / "own.pth")
    assert len(reads) == 1
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_a_backbone_loads_its_own_checkpoint_whole(tmp_path):
    """LiSANet has PVTv2's names among its own."""
    arch = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 2, 2, 2))
    theirs = randomised(LiSANet(arch, image_size=64))
    for state in (theirs.state_dict(), {f"backbone.{name}": tensor for name, tensor in theirs.state_dict().items()}):
        ours = LiSANet(arch, image_size=64, init_cfg=source(tmp_path / "own.pth", {"state_dict": state}))
        ours.init_weights()
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=0, atol=0)
        with pytest.raises(
            ValueError, match=r"none of the known networks.* is loaded without conversion: init_cfg=dict"
        ):
            convert_published(str(tmp_path / "own.pth"))


def test_values_of_a_host_are_joined_where_the_backbone_is():
    """On a GPU, MMEngine initialises a model that is there already."""
    ours = {"blocks.0.attn.qkv.weight": torch.zeros(6, 2, dtype=torch.float64)}
    state = {"blocks.0.attn.v.weight": torch.ones(2, 2)}
    matching._join_projections(state, {name: tensor.to("meta") for name, tensor in ours.items()})
    assert state["blocks.0.attn.qkv.weight"].is_meta
    state = {"blocks.0.attn.v.weight": torch.ones(2, 2)}
    matching._join_projections(state, ours)
    assert state["blocks.0.attn.qkv.weight"].tolist() == [[0, 0]] * 4 + [[1, 1]] * 2
