"""A file is judged against a model part by part, in both directions; what a start may lack is named."""

import pytest
import torch
from timm.models import adapt_input_conv
from torch import nn

from helpers.backbones import CASES
from mmlisa.checkpoints import (
    CheckpointError,
    compare,
    fresh_in_a_start,
    judge,
    load_checkpoint,
    load_weights,
    saved_metainfo,
)
from mmlisa.models.backbones import LiSANet
from mmlisa.registry import MODELS

ARCH = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 1, 1, 1))


@pytest.fixture
def save(tmp_path):
    def save_file(content) -> str:
        torch.save(content, tmp_path / "weights.pth")
        return str(tmp_path / "weights.pth")

    return save_file


@pytest.fixture
def log(monkeypatch):
    lines = []
    monkeypatch.setattr("mmlisa.checkpoints.fitting.print_log", lambda line, **_: lines.append(line))
    return lines


class Detector(nn.Module):
    """The parts of a detector; the backbone has nearly all of its values."""

    def __init__(self, stages=2, classes=3, cascade=1):
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)) for _ in range(stages)]
        self.backbone = nn.ModuleDict(dict(stages=nn.ModuleList(blocks), norm0=nn.LayerNorm(64)))
        self.neck = nn.Linear(2, 2)
        boxes = [nn.ModuleDict(dict(fc_cls=nn.Linear(2, classes))) for _ in range(cascade)]
        self.roi_head = nn.ModuleDict(dict(bbox_head=nn.ModuleList(boxes), mask_head=nn.Linear(2, 2)))
        self.query = nn.Parameter(torch.zeros(2))


def test_parts_are_compared_by_numbers_of_values():
    model = Detector()
    state = {**model.state_dict(), "neck.bias": torch.zeros(3), "neck.extra": torch.zeros(5)}
    del state["roi_head.mask_head.weight"]
    parts = compare(model, state)
    assert list(parts) == ["query", "backbone", "neck", "roi_head.bbox_head.0", "roi_head.mask_head"]
    neck, mask = parts["neck"], parts["roi_head.mask_head"]
    assert (neck.size, neck.found, neck.surplus, list(neck.reshaped)) == (6, 4, {"neck.extra": 5}, ["neck.bias"])
    assert (mask.size, mask.found, mask.missing) == (6, 2, ["roi_head.mask_head.weight"])
    backbone = parts["backbone"]
    assert backbone.size == backbone.found == 2 * (64 * 64 + 64 + 4 * 64) + 128, "counters of batches do not count"


@pytest.mark.parametrize(
    "part", ["backbone.norm0", "neck", "roi_head.bbox_head.0", "roi_head.mask_head", "roi_head", "query"]
)
def test_a_file_without_a_part_is_refused(part):
    model = Detector()
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(part)}
    with pytest.raises(CheckpointError, match=rf"a\.pth.* of another model\. .*lacks {part}.*--may-differ "):
        judge(model, {"state_dict": state}, "a.pth")
    judge(model, {"state_dict": state}, "a.pth", may_differ=[part])


@pytest.mark.parametrize("options", [dict(stages=3), dict(cascade=2)])
def test_values_of_the_file_without_a_place_are_refused(options):
    state = Detector(**options).state_dict()
    with pytest.raises(CheckpointError, match="values of the file have no place in the model"):
        judge(Detector(), {"state_dict": state}, "a.pth")


@pytest.mark.parametrize(
    "meta", [{"dataset_meta": {"classes": ("cat", "dog")}}, {"dataset_meta": [{"CLASSES": ("cat", "dog")}]}]
)
def test_another_shape_is_named_with_the_classes_of_the_file(meta):
    checkpoint = {"state_dict": Detector(classes=8).state_dict(), "meta": meta}
    assert saved_metainfo(checkpoint) == {"classes": ("cat", "dog")}
    assert saved_metainfo({"meta": {"dataset_meta": None}}) == saved_metainfo({}) == {}
    message = r"fc_cls\.weight is \[8, 2\] in the checkpoint and \[3, 2\] in the model.* 2 classes \(cat, dog\)"
    with pytest.raises(CheckpointError, match=message):
        judge(Detector(), checkpoint, "a.pth")


def test_what_a_start_lacks(log):
    """A classifier's file has no neck and no norms of maps, and a head of its own; a deeper one is refused all the same."""
    model = Detector()
    state = {n: t for n, t in model.state_dict().items() if n.startswith("backbone.stages")}
    checkpoint = {"state_dict": {**state, "head.fc.weight": torch.ones(2, 2), "backbone.norm3.weight": torch.ones(2)}}
    load_checkpoint(model, checkpoint, "a.pth", fresh_in_a_start(model, checkpoint))
    assert log[-1].startswith("a.pth: query 0 of 2 values, backbone 8832 of 8960 values, neck 0 of 6 values")
    assert "head of the file is not used" in log[-1]
    for stages in (1, 3):
        other = Detector(stages)
        with pytest.raises(CheckpointError, match="backbone"):
            load_checkpoint(other, checkpoint, "a.pth", fresh_in_a_start(other, checkpoint))


def test_entries_that_a_conversion_lists_as_fresh_may_be_missing():
    model = Detector()
    state = {n: t for n, t in model.state_dict().items() if "stages.1.0" not in n}
    checkpoint = {"state_dict": state, "meta": {"fresh": ["backbone.stages.1.0.weight", "backbone.stages.1.0.bias"]}}
    judge(model, checkpoint, "a.pth", fresh_in_a_start(model, checkpoint))
    backbone = {name.removeprefix("backbone."): each for name, each in state.items() if name.startswith("backbone.")}
    checkpoint = {"state_dict": backbone, "meta": checkpoint["meta"]}
    judge(model.backbone, checkpoint, "a.pth", fresh_in_a_start(model.backbone, checkpoint))
    with pytest.raises(CheckpointError, match=r"stages\.1\.0\.weight"):
        judge(model.backbone, checkpoint, "a.pth")


def test_a_refused_file_changes_nothing_and_a_wrapped_one_is_loaded(save):
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    with pytest.raises(CheckpointError, match="0 of 6 values"):
        load_weights(model, save({"state_dict": nn.Sequential(nn.Linear(2, 3)).state_dict()}))
    assert torch.equal(model.weight, before)
    state = {f"module.{name}": tensor.half() + 1 for name, tensor in model.state_dict().items()}
    load_weights(model, save({"model": state, "epoch": 3}))
    assert torch.equal(model.weight, (before.half() + 1).float())


def test_options_of_the_backbone_that_no_shape_shows(log):
    with torch.device("meta"):
        ours, theirs = LiSANet(ARCH), LiSANet({**ARCH, "position": "conv"})
    checkpoint = {"state_dict": ours.state_dict(), "meta": {"backbone": theirs.settings()}}
    with pytest.raises(CheckpointError, match=r"a\.pth.* position='conv'.* has position='stage'"):
        judge(ours, checkpoint, "a.pth")
    judge(ours, checkpoint, "a.pth", may_differ=["position"])
    judge(ours, checkpoint | {"meta": {"backbone": ours.settings()}}, "a.pth")
    assert log[-1].endswith("values match")
    judge(ours, {"state_dict": ours.state_dict()}, "a.pth")
    assert "does not state the options of its backbone" in log[-1]


def test_defaults_of_the_operator_are_options_too():
    with torch.device("meta"):
        plain = MODELS.build(CASES["flatten-deit"])
        same = MODELS.build({**CASES["flatten-deit"], "attention": dict(focusing_factor=3)})
        other = MODELS.build({**CASES["flatten-deit"], "attention": dict(focusing_factor=4)})
    checkpoint = {"state_dict": plain.state_dict(), "meta": {"backbone": plain.settings()}}
    judge(same, checkpoint, "a.pth")
    with pytest.raises(CheckpointError, match="attention"):
        judge(other, checkpoint, "a.pth")


@pytest.mark.parametrize("case", CASES)
def test_settings_are_a_config_of_the_backbone_and_survive_a_file(case, save):
    with torch.device("meta"):
        backbone = MODELS.build(CASES[case])
        settings = torch.load(save(backbone.settings()), weights_only=True)
        assert MODELS.build(settings).settings() == settings == backbone.settings()


@pytest.mark.parametrize(
    "bias",
    [
        torch.tensor([1, 2, 3]),
        torch.tensor([1j, 2, 3]),
        torch.tensor([1, torch.nan, 1]),
        torch.tensor([torch.inf] * 3),
        "text",
    ],
)
def test_values_that_are_not_weights(save, bias):
    model = nn.Linear(2, 3)
    file = save({**model.state_dict(), "bias": bias})
    with pytest.raises(CheckpointError, match=r"weights\.pth.*bias"):
        load_weights(model, file)


@pytest.mark.parametrize("prefix", ["backbone", "backbone."])
@pytest.mark.parametrize("wrapper", ["", "module.", "module._orig_mod."])
def test_pretrained_backbones_are_loaded_by_prefix(save, prefix, wrapper):
    """Of a detector, also below a parallel wrapper; ``backbone`` is not ``backbone2``."""
    state = LiSANet(ARCH).state_dict()
    both = {f"{wrapper}{part}.{n}": t + i for i, part in enumerate(("backbone", "backbone2")) for n, t in state.items()}
    loaded = LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=save({"state_dict": both}), prefix=prefix))
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict(), state, rtol=0, atol=0)


@pytest.mark.parametrize("channels", [1, 4])
def test_weights_of_rgb_for_other_input_channels(save, channels):
    state = LiSANet(ARCH).state_dict()
    (stem,) = [name for name, tensor in state.items() if tensor.ndim == 4 and tensor.shape[1] == 3]
    cfg = dict(type="Pretrained", checkpoint=save({"state_dict": state}))
    loaded = LiSANet(ARCH, in_channels=channels, init_cfg=cfg)
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict()[stem], adapt_input_conv(channels, state[stem]))


def test_what_differs_in_an_init_cfg_is_named(save):
    state = {name: each for name, each in LiSANet(ARCH).state_dict().items() if not name.startswith("stages.3")}
    cfg = dict(type="Pretrained", checkpoint=save({"state_dict": state}))
    with pytest.raises(CheckpointError, match=r"lacks stages\.3"):
        LiSANet(ARCH, init_cfg=cfg).init_weights()
    LiSANet(ARCH, init_cfg=dict(cfg, may_differ=["stages.3"])).init_weights()


def test_a_forgotten_prefix_is_named(save):
    state = {f"backbone.{name}": tensor for name, tensor in LiSANet(ARCH).state_dict().items()}
    with pytest.raises(CheckpointError, match=r"Add prefix='backbone\.'"):
        LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=save({"state_dict": state}))).init_weights()
    detector = Detector()
    with pytest.raises(CheckpointError, match=r"a backbone alone.*--pretrained"):
        judge(detector, {"state_dict": detector.backbone.state_dict()}, "a.pth")


class Renamed(nn.Linear):
    """Renames its weights in a hook, as networks of other libraries do for older files."""

    def __init__(self):
        super().__init__(2, 3)
        self._register_load_state_dict_pre_hook(self.rename)

    def rename(self, state, prefix, *_):
        if f"{prefix}old" in state:
            state[f"{prefix}weight"] = state.pop(f"{prefix}old")


def test_hooks_of_other_libraries_run_before_the_comparison():
    model = nn.Sequential(Renamed())
    state = {"0.old": torch.ones(3, 2), "0.bias": torch.ones(3)}
    load_checkpoint(model, state, "a.pth")
    assert (model[0].weight == 1).all()
    assert list(state) == ["0.old", "0.bias"]


class Stateful(nn.Linear):
    """Keeps a dict beside its weights, as layers of torchao and Transformer Engine do."""

    extra = None

    def get_extra_state(self):
        return {"scale": self.extra}

    def set_extra_state(self, state):
        self.extra = state["scale"]


def test_extra_states_of_modules_are_loaded(save):
    model, other = Stateful(2, 3), Stateful(2, 3)
    model.extra = 2.0
    load_weights(other, save(model.state_dict()))
    assert other.extra == 2.0
