"""``init_cfg=dict(type='mmlisa.PublishedWeights')``: any source, what matched in the log, and the same by the converter."""

import pytest
import timm
import torch
from huggingface_hub.errors import HfHubHTTPError
from mmdet.models.backbones.swin import SwinTransformer
from mmengine.model import BaseModule, ModuleList
from torch import nn

from helpers.networks import randomised
from mmlisa.checkpoints import CheckpointError, below_prefix, load_checkpoint, state_dict_of
from mmlisa.conversion import PublishedWeights, convert_published, known_sources, read
from mmlisa.models.backbones import CastlingLCNetViT, FLattenDeiT, FLattenSwin, LCNet, LiSANet


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
    ours = build(dict(source(tmp_path / "w.pth", WRAPPINGS[wrapping](theirs)), min_matched=1.0))
    tolerance = {"half": 1e-3, "bfloat16": 1e-2}.get(wrapping, 0)
    torch.testing.assert_close(ours.stem[0].weight, theirs["conv_stem.weight"], rtol=tolerance, atol=0)
    last, name = ours.stages[3].downsample[1].conv_pw.weight, "blocks.5.1.conv_pw.weight"
    torch.testing.assert_close(last, theirs[name], rtol=tolerance, atol=1e-6 * bool(tolerance))


@pytest.mark.parametrize("key", ["state_dict_ema", "model_ema", "ema_state_dict"])
def test_averaged_weights(tmp_path, theirs, key, monkeypatch):
    """MMEngine's hook exchanges the two: ``ema_state_dict`` has the weights without averaging, and a count."""
    lines = []
    monkeypatch.setattr("mmlisa.checkpoints.reading.print_log", lambda line, **_: lines.append(line))
    other = {f"module.{name}": tensor + 1 for name, tensor in theirs.items()} | {"steps": torch.tensor(5)}
    config = source(tmp_path / "ema.pth", {"state_dict": theirs, key: other})
    is_mmengines = key == "ema_state_dict"
    averaged = theirs["conv_stem.weight"] + (not is_mmengines)
    assert torch.equal(build(dict(config, ema=True)).stem[0].weight, averaged)
    assert not torch.equal(build(dict(config, ema=False)).stem[0].weight, averaged)
    assert not any("averaged" in line for line in lines), "a choice is not a surprise"
    assert torch.equal(build(config).stem[0].weight, theirs["conv_stem.weight"])
    state_dict_of(torch.load(config["source"]), "a.pth")
    named = [line for line in lines if f"loads 'state_dict', not the averaged weights in '{key}'" in line]
    assert len(named) == 2 * (not is_mmengines)
    with pytest.raises(ValueError, match="ema=True"):
        build(dict(source(tmp_path / "plain.pth", {"model": theirs}), ema=True))


def test_it_is_loaded_last_and_the_log_lists_what_starts_fresh(tmp_path, theirs, monkeypatch):
    lines = []
    monkeypatch.setattr("mmlisa.conversion.published.print_log", lambda line, **_: lines.append(line))
    config = source(tmp_path / "w.pth", theirs) | dict(min_matched=0.05)
    backbone = CastlingLCNetViT(dict(base="small", scale=0.5), init_cfg=config)
    fresh = backbone.stages[2].blocks[0].attn.qkv.weight.clone()
    backbone.init_weights()
    assert torch.equal(backbone.stages[1].downsample[0].conv_pw.weight, theirs["blocks.2.0.conv_pw.weight"])
    assert torch.equal(backbone.stages[2].blocks[0].attn.qkv.weight, fresh)
    assert "% of the parameters" in lines[0]
    assert "start fresh, no counterpart in the file: stages.*.blocks.*.norm1.weight" in lines[0]


def test_timm_sources(theirs, monkeypatch):
    """Random weights stand in for timm's download."""
    model = timm.create_model("lcnet_050")
    model.load_state_dict(theirs)
    models = {"lcnet_050.ra2_in1k": model}
    monkeypatch.setattr("mmlisa.conversion.reading.timm.create_model", lambda name, pretrained: models[name])
    monkeypatch.setattr("mmlisa.conversion.reading.get_hf_file_metadata", lambda address: None)
    ours = build(dict(type="mmlisa.PublishedWeights", source="timm:lcnet_050.ra2_in1k"))
    assert torch.equal(ours.stem[0].weight, theirs["conv_stem.weight"])
    assert {"timm:lcnet_050.ra2_in1k", "timm:caformer_s18.sail_in22k_ft_in1k"} <= set(known_sources())
    with pytest.raises(ValueError, match="timm:lcnet_055"):
        build(dict(type="mmlisa.PublishedWeights", source="timm:lcnet_055"))


def test_without_a_network_the_message_names_the_file_to_bring(monkeypatch):
    def refuse(address):
        raise OSError("no network")

    monkeypatch.setattr("mmlisa.conversion.reading.get_hf_file_metadata", refuse)
    with pytest.raises(
        ConnectionError, match=r"timm/lcnet_050\.ra2_in1k/resolve/main/model\.safetensors .*--weights FILE"
    ):
        read("timm:lcnet_050.ra2_in1k")


@pytest.mark.parametrize("name", ["lcnet_050.ra2_in1k", "gcvit_tiny.in1k"])
def test_a_hub_that_has_the_weights_under_another_name_is_no_missing_network(monkeypatch, name):
    """The second network is on no hub, but has an address."""

    def answer(address):
        assert name.startswith("lcnet")
        raise HfHubHTTPError.__new__(HfHubHTTPError)  # its arguments depend on the version

    monkeypatch.setattr("mmlisa.conversion.reading.get_hf_file_metadata", answer)
    model = nn.Linear(2, 3)
    monkeypatch.setattr("mmlisa.conversion.reading.timm.create_model", lambda name, pretrained: model)
    assert read(f"timm:{name}")["state_dict"].keys() == model.state_dict().keys()


def test_bad_files(tmp_path, theirs):
    broken = dict(theirs, **{"conv_stem.weight": theirs["conv_stem.weight"] * torch.nan})
    with pytest.raises(CheckpointError, match="not finite"):
        build(source(tmp_path / "nan.pth", broken))
    with pytest.raises(ValueError, match="no place in FLattenDeiT"):
        FLattenDeiT(init_cfg=source(tmp_path / "lcnet.pth", theirs)).init_weights()
    with pytest.raises(ValueError, match=r"fills 0\.0% of LCNet, less than min_matched=0\.1"):
        PublishedWeights(str(tmp_path / "lcnet.pth"))(LCNet("x2.0"))
    with pytest.raises(ValueError, match="head=True"):  # two heads with batch norms
        convert_published(timm.create_model("levit_128s").state_dict(), head=True)


def test_the_converter_chooses_the_backbone_or_takes_the_named_one(tmp_path, theirs):
    checkpoint, report = convert_published(theirs)
    assert "for LCNet 'x0.5'" in report
    assert checkpoint["meta"]["backbone"] == LCNet("x0.5").settings()
    assert checkpoint["meta"]["fresh"] == []
    assert torch.equal(checkpoint["state_dict"]["backbone.stem.0.weight"], theirs["conv_stem.weight"])
    checkpoint, report = convert_published(theirs, to=("CastlingLCNetViT", "small"), min_matched=0)
    assert checkpoint["meta"]["backbone"] == CastlingLCNetViT("small").settings()
    assert "of another shape" in report


def test_a_converted_file_states_what_it_lacks(tmp_path):
    """As a start it is taken, as the trained network refused; weights of another width are not what it lacks."""
    for name, fits in (("lcnet_075", True), ("lcnet_050", False)):
        checkpoint, _ = convert_published(
            timm.create_model(name).state_dict(), to=("CastlingLCNetViT", "small"), min_matched=0
        )
        torch.save(checkpoint, tmp_path / f"{name}.pth")
        init_cfg = dict(type="Pretrained", checkpoint=str(tmp_path / f"{name}.pth"), prefix="backbone.")
        started = CastlingLCNetViT("small", init_cfg=init_cfg)
        if not fits:
            with pytest.raises(CheckpointError, match="stem"):
                started.init_weights()
            continue
        started.init_weights()
        assert torch.equal(started.stem[0].weight, checkpoint["state_dict"]["backbone.stem.0.weight"])
        with pytest.raises(CheckpointError, match="attn"):
            load_checkpoint(started, below_prefix(checkpoint["state_dict"], "backbone."), "converted.pth")


def test_a_backbone_loads_its_own_checkpoint_whole(tmp_path):
    """LiSANet has PVTv2's names among its own."""
    arch = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 2, 2, 2))
    theirs = randomised(LiSANet(arch, image_size=64)).state_dict()
    for state in (theirs, {f"backbone.{name}": tensor for name, tensor in theirs.items()}):
        ours = LiSANet(arch, image_size=64, init_cfg=source(tmp_path / "own.pth", {"state_dict": state}))
        ours.init_weights()
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs), rtol=0, atol=0)
        with pytest.raises(ValueError, match=r"none of the known networks.*Pretrained"):
            convert_published(state)


class Detector(BaseModule):
    """A backbone of a few hundred weights, and a head of more, which MMEngine initializes."""

    def __init__(self, backbone, init_cfg=None):
        super().__init__(init_cfg)
        normal = dict(type="Normal", layer="Linear", std=0.01)
        self.backbone, self.head = backbone, ModuleList([nn.Linear(2, 2) for _ in range(400)], init_cfg=normal)


def test_a_detectors_init_cfg_loads_backbone_and_heads(tmp_path):
    """From a library's detector the matching entries, from one of ours all; the tool keeps its heads, too."""
    theirs = Detector(SwinTransformer())
    randomised(theirs)
    torch.save({"state_dict": theirs.state_dict()}, tmp_path / "theirs.pth")
    published = dict(type="mmlisa.PublishedWeights", source=str(tmp_path / "theirs.pth"))
    ours = Detector(FLattenSwin("tiny"), init_cfg=published)
    ours.init_weights()
    head = {f"head.{name}": tensor for name, tensor in theirs.head.state_dict().items()}
    for name, tensor in head.items():
        assert torch.equal(ours.state_dict()[name], tensor)
    assert torch.equal(
        ours.backbone.stages[2].blocks[3].mlp.fc1.weight, theirs.backbone.stages[2].blocks[3].ffn.layers[0][0].weight
    )
    torch.save({"state_dict": ours.state_dict()}, tmp_path / "ours.pth")
    twin = Detector(FLattenSwin("tiny"), init_cfg=dict(published, source=str(tmp_path / "ours.pth")))
    twin.init_weights()
    assert all(torch.equal(tensor, twin.state_dict()[name]) for name, tensor in ours.state_dict().items())
    checkpoint, report = convert_published(str(tmp_path / "theirs.pth"))
    assert checkpoint["meta"]["backbone"] == FLattenSwin("tiny").settings(), report
    assert {name for name in checkpoint["state_dict"] if not name.startswith("backbone.")} == head.keys()
    assert torch.equal(checkpoint["state_dict"]["backbone.norm0.weight"], theirs.backbone.norm0.weight)
