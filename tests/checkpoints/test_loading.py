"""Damaged, foreign and unsafe checkpoint files are refused with a reason."""

import pickle
import sys
from argparse import Namespace
from collections import OrderedDict
from types import ModuleType

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner.checkpoint import CheckpointLoader
from torch import nn

from mmlisa.checkpoints import load_checkpoint, load_weights, match_report, save_checkpoint, use_safe_loader
from mmlisa.registry import MODELS

ARCH = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 1, 1, 1))


class Malicious:
    def __reduce__(self):
        return (print, ("code in a checkpoint was run",))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.pth"
    history = HistoryBuffer([1.0, 2.0], [1, 1])
    state = {
        "state_dict": nn.Linear(2, 3).state_dict(),
        "message_hub": {"log_scalars": {"loss": history}},
        "optimizer": {},
        "meta": {"iter": 1, "epoch": 0},
    }
    torch.save(state, path)
    return path


def test_good_checkpoint_with_mmengines_history(good):
    checkpoint = load_checkpoint(good)
    assert checkpoint["message_hub"]["log_scalars"]["loss"].mean() == 1.5


@pytest.mark.parametrize("protocol", ["zip", "pickle"])
def test_code_is_refused_and_not_run(tmp_path, capsys, protocol):
    path = tmp_path / "bad.pth"
    if protocol == "zip":
        torch.save({"state_dict": Malicious()}, path)
    else:
        path.write_bytes(pickle.dumps({"state_dict": Malicious()}))
    with pytest.raises(ValueError, match=r"bad\.pth"):
        load_checkpoint(path)
    assert "was run" not in capsys.readouterr().out


def test_options_and_numbers_of_training_scripts_come_along(tmp_path, monkeypatch):
    """yacs need not be installed, numpy may be another one; their objects come out as ordered dicts and numbers."""
    yacs, numpy1 = ModuleType("yacs.config"), ModuleType("numpy.core.multiarray")
    yacs.CfgNode = type("CfgNode", (dict,), {"__module__": "yacs.config", "__qualname__": "CfgNode"})
    numpy1.scalar = lambda *_: None
    numpy1.scalar.__module__, numpy1.scalar.__qualname__ = "numpy.core.multiarray", "scalar"
    numpy1.scalar.__name__ = "scalar"
    for module in (ModuleType("yacs"), yacs, numpy1):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    config = yacs.CfgNode(MODEL=yacs.CfgNode(TYPE="swin", DEPTHS=[2, 2, 6, 2]))
    config.__dict__["__immutable__"] = True
    old_number = type(
        "Number", (), {"__reduce__": lambda _: (numpy1.scalar, (np.dtype("f4"), np.float32(0.5).tobytes()))}
    )()
    path = tmp_path / "official.pth"
    weight = torch.ones(2)
    torch.save(
        {
            "model": {"weight": weight},
            "config": config,
            "args": Namespace(lr=1e-3, betas=(0.9, 0.999)),
            "max_accuracy": np.float32(82.1),
            "flag": np.bool_(True),
            "old": old_number,
        },
        path,
    )
    monkeypatch.delitem(sys.modules, "yacs.config")
    loaded = load_checkpoint(path)
    assert torch.equal(loaded["model"]["weight"], weight)
    assert type(loaded["config"]) is OrderedDict
    assert loaded["config"]["MODEL"] == {"TYPE": "swin", "DEPTHS": [2, 2, 6, 2]}
    assert type(loaded["args"]) is OrderedDict
    assert loaded["args"].lr == 1e-3
    assert loaded["max_accuracy"] == np.float32(82.1)
    assert loaded["old"] == 0.5


def test_mmengines_own_loader_becomes_safe(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(CheckpointLoader, "_schemes", dict(CheckpointLoader._schemes))
    path = tmp_path / "bad.pth"
    torch.save({"state_dict": Malicious()}, path)
    use_safe_loader()
    with pytest.raises(ValueError, match="could run code"):
        CheckpointLoader.load_checkpoint(str(path), logger=None)
    assert "was run" not in capsys.readouterr().out


def test_truncated_and_missing(good, tmp_path):
    cut = tmp_path / "cut.pth"
    cut.write_bytes(good.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"cut\.pth is truncated"):
        load_checkpoint(cut)
    empty = tmp_path / "empty.pth"
    empty.touch()
    with pytest.raises(ValueError, match=r"empty\.pth"):
        load_checkpoint(empty)
    with pytest.raises(FileNotFoundError, match=r"none\.pth"):
        load_checkpoint(tmp_path / "none.pth")


def test_match_report_and_threshold(tmp_path):
    model, other = nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3))
    share, line = match_report(model, other.state_dict())
    assert share == 0
    assert "0 of 2 entries match" in line
    path = tmp_path / "other.pth"
    torch.save({"state_dict": other.state_dict()}, path)
    before = model.weight.clone()
    with pytest.raises(ValueError, match="of another model: 0 of 2"):
        load_weights(model, path)
    assert torch.equal(model.weight, before)
    torch.save({f"module.{name}": tensor + 1 for name, tensor in model.state_dict().items()}, path)
    load_weights(model, path)
    assert torch.equal(model.weight, before + 1)


def test_weights_of_another_resolution_match_and_load(tmp_path):
    arch = dict(base="isotropic", depths=(1,), channels=(32,), num_heads=(2,))
    small, large = (MODELS.build(dict(type="LiSANet", arch=arch, image_size=size)) for size in (64, 96))
    path = tmp_path / "small.pth"
    torch.save({"state_dict": small.state_dict()}, path)
    assert match_report(large, small.state_dict()) == (
        1,
        f"{len(large.state_dict())} of {len(large.state_dict())} entries match",
    )
    load_weights(large, path, min_matched=1)
    image = torch.randn(1, 3, 96, 96)
    # One network at two resolutions: the small one resamples the same kernels at the call.
    torch.testing.assert_close(large.eval()(image), small.eval()(image))


def test_a_third_of_a_backbone_is_refused(tmp_path):
    build, path = MODELS.get("LiSANet"), tmp_path / "third.pth"
    state = build(ARCH).state_dict()
    torch.save({"state_dict": dict(list(state.items())[: len(state) // 3])}, path)
    cfg = dict(type="Pretrained", checkpoint=str(path))
    with pytest.raises(ValueError, match=f"{len(state) // 3} of {len(state)} entries match"):
        build(ARCH, init_cfg=cfg).init_weights()
    build(ARCH, init_cfg=dict(cfg, min_matched=0.3)).init_weights()


def test_a_parallel_wrapper_around_a_detector_is_taken_off_before_the_prefix(tmp_path):
    """``module.backbone.*`` with ``prefix='backbone'``."""
    build, path = MODELS.get("LiSANet"), tmp_path / "parallel.pth"
    state = build(ARCH).state_dict()
    torch.save({"state_dict": {f"module.backbone.{name}": tensor for name, tensor in state.items()}}, path)
    loaded = build(ARCH, init_cfg=dict(type="Pretrained", checkpoint=str(path), prefix="backbone"))
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict(), state, rtol=0, atol=0)


def test_half_precision_files_load_with_their_values(tmp_path):
    model, path = nn.Linear(4, 3), tmp_path / "half.pth"
    for dtype in (torch.bfloat16, torch.float16):
        for zipped in (True, False):
            torch.save({name: tensor.to(dtype) for name, tensor in model.state_dict().items()}, path,
                       _use_new_zipfile_serialization=zipped)  # fmt: skip
            target = nn.Linear(4, 3)
            load_weights(target, path)
            assert target.weight.dtype == torch.float32
            assert torch.equal(target.weight, model.weight.to(dtype).float())


def test_entries_that_the_model_lacks_are_named_and_do_not_enter_it(tmp_path):
    model, path = nn.Linear(2, 3), tmp_path / "more.pth"
    torch.save({**model.state_dict(), "extra.weight": torch.ones(1)}, path)
    assert "1 not in the model (extra.weight)" in match_report(model, load_checkpoint(path))[1]
    load_weights(model, path)
    assert list(model.state_dict()) == ["weight", "bias"]


def test_what_mmlisa_saves_needs_no_stand_in(tmp_path):
    """Plain PyTorch reads it as it is."""
    save_checkpoint(
        {"state_dict": nn.Linear(2, 3).state_dict(), "meta": {"iter": 1}, "optimizer": {}}, tmp_path / "a.pth"
    )
    assert torch.load(tmp_path / "a.pth", weights_only=True)["meta"]["iter"] == 1


def test_a_prefix_is_a_whole_part_of_a_name(tmp_path):
    """Not the beginning of one: ``backbone`` is not ``backbone2``."""
    build, path = MODELS.get("LiSANet"), tmp_path / "two.pth"
    state = build(ARCH).state_dict()
    both = {f"{part}.{n}": t + i for i, part in enumerate(("backbone", "backbone2")) for n, t in state.items()}
    torch.save(both, path)
    for prefix in ("backbone", "backbone."):
        loaded = build(ARCH, init_cfg=dict(type="Pretrained", checkpoint=str(path), prefix=prefix))
        loaded.init_weights()
        torch.testing.assert_close(loaded.state_dict(), state)


def test_pretrained_init_from_a_classifier(tmp_path):
    """mmpretrain's layout: `backbone.*` beside a head; loaded by prefix, refused without it."""
    build = MODELS.get("LiSANet")
    source, path = build(ARCH), tmp_path / "classifier.pth"
    state = {f"backbone.{name}": tensor + 1 for name, tensor in source.state_dict().items()}
    torch.save({"state_dict": {**state, "head.fc.weight": torch.zeros(2, 16)}}, path)

    loaded = build(ARCH, init_cfg=dict(type="Pretrained", checkpoint=str(path), prefix="backbone."))
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict(), {n.removeprefix("backbone."): t for n, t in state.items()})

    with pytest.raises(ValueError, match="0 of 102 entries match"):
        build(ARCH, init_cfg=dict(type="Pretrained", checkpoint=str(path))).init_weights()
    wider = dict(ARCH, channels=(16, 32, 32, 32))
    with pytest.raises(ValueError, match="of another model"):
        build(wider, init_cfg=dict(type="Pretrained", checkpoint=str(path), prefix="backbone.")).init_weights()
    build(
        wider, init_cfg=dict(type="Pretrained", checkpoint=str(path), prefix="backbone.", min_matched=0)
    ).init_weights()


def test_pretrained_weights_are_read_once(tmp_path):
    """A second call of ``init_weights`` leaves what was trained since."""
    build, path = MODELS.get("LiSANet"), tmp_path / "weights.pth"
    torch.save(build(ARCH).state_dict(), path)
    backbone = build(ARCH, init_cfg=dict(type="Pretrained", checkpoint=str(path)))
    backbone.init_weights()
    with torch.no_grad():
        backbone.norm0.bias.fill_(3)
    backbone.init_weights()
    assert (backbone.norm0.bias == 3).all()
