"""Checkpoints: what training scripts save is read, code is refused, damage is named; matching with a model; atomic writing."""

import errno
import os
import shutil
from argparse import Namespace
from collections import Counter, OrderedDict
from contextlib import suppress
from urllib.error import URLError

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint
from mmengine.runner.checkpoint import CheckpointLoader
from timm.models import adapt_input_conv
from torch import nn

from mmlisa.checkpoints import (
    CheckpointError,
    atomic_path,
    download,
    latest_checkpoint,
    load_weights,
    match_report,
    read_checkpoint,
    save_checkpoint,
    use_safe_loader,
    writing_whole,
)
from mmlisa.models.backbones import LCNet, LiSANet


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class HostileArray:
    """An array of references to objects, at addresses that the file chooses."""

    def __reduce__(self):
        new = np.zeros(0).__reduce__()
        return new[0], new[1], (1, (1,), np.dtype("O"), False, bytes(8))


@pytest.mark.parametrize("zipped", [True, False])
def test_what_training_scripts_save(tmp_path, zipped):
    """PyTorch's two formats with the NumPy, MMEngine and argparse objects that checkpoints of training scripts hold."""
    weight = torch.randn(3, 4)
    saved = {
        "state_dict": OrderedDict(weight=weight, half=weight.half(), tied=weight, parameter=nn.Parameter(weight)),
        "message_hub": {"log_scalars": {"loss": HistoryBuffer([1.0, 2.0], [1, 1])}},
        "meta": {"dataset_meta": ConfigDict(classes=("a", "b")), "iter": 3, "big": 2**70},
        "param_schedulers": [{"milestones": Counter([8, 11, 11])}],
        "args": Namespace(lr=1e-3),
        "max_accuracy": np.float32(82.1),
        "columns": np.asfortranarray(weight.numpy()),
    }
    torch.save(saved, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    found = read_checkpoint(tmp_path / "a.pth")
    for name, expected in saved["state_dict"].items():
        assert torch.equal(found["state_dict"][name], expected)
    loss = found["message_hub"]["log_scalars"]["loss"]
    loss.update(6.0)
    assert (type(loss), loss.statistics("mean")) == (HistoryBuffer, 3)
    assert found["meta"] == {"dataset_meta": {"classes": ("a", "b")}, "iter": 3, "big": 2**70}
    assert found["param_schedulers"][0]["milestones"] == Counter({8: 1, 11: 2})
    assert found["args"].lr == 1e-3
    assert found["max_accuracy"] == np.float32(82.1)
    assert np.array_equal(found["columns"], weight)
    torch.save(found, tmp_path / "b.pth")  # a resumed training saves it again
    assert read_checkpoint(tmp_path / "b.pth").keys() == saved.keys()


def test_safetensors(tmp_path):
    from safetensors.torch import save_file

    weights = {"a.weight": torch.randn(2, 3), "b": torch.randn(4).bfloat16()}
    save_file(weights, tmp_path / "a.safetensors")
    found = read_checkpoint(tmp_path / "a.safetensors")
    assert all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("entry", ["state_dict", "message_hub"])
def test_code_is_refused_and_not_run(tmp_path, zipped, entry):
    path = tmp_path / "bad.pth"
    torch.save({entry: Malicious(tmp_path / "ran")}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"bad\.pth.*mkdir"):
        read_checkpoint(path)
    assert not (tmp_path / "ran").exists()


def test_an_array_of_objects_is_refused(tmp_path):
    torch.save({"a": HostileArray()}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"a\.pth"):
        read_checkpoint(tmp_path / "a.pth")


def test_the_code_that_mmengine_runs_is_left_out(tmp_path):
    """MMEngine passes these texts of ``meta`` and of the message hub to ``Config.fromstring``, which executes them."""
    part = {"config": "raise SystemExit", "cfg": "raise SystemExit", "iter": 3}
    torch.save({"meta": part, "message_hub": {"runtime_info": dict(part)}}, tmp_path / "a.pth")
    found = read_checkpoint(tmp_path / "a.pth")
    assert found["meta"] == found["message_hub"]["runtime_info"] == {"iter": 3}


@pytest.mark.parametrize("damage", ["cut", "flipped", "text", "empty", "list"])
def test_damaged_and_other_files_are_named(tmp_path, damage):
    path, weight = tmp_path / "damaged.pth", torch.randn(100)
    torch.save([weight] if damage == "list" else {"weight": weight}, path)
    content = bytearray(path.read_bytes())
    if damage == "flipped":  # which torch.load accepts
        content[content.index(weight.numpy().tobytes()) + 50] ^= 1
    other = {"cut": content[:-200], "text": b"some notes\n", "empty": b""}
    path.write_bytes(other.get(damage, content))
    with pytest.raises(CheckpointError, match=r"damaged\.pth"):
        read_checkpoint(path)
    with pytest.raises(FileNotFoundError, match=r"none\.pth"):
        read_checkpoint(tmp_path / "none.pth")


def test_mmengines_own_loaders_become_safe(tmp_path, monkeypatch):
    """Only when a program calls ``use_safe_loader``; a backbone's ``init_cfg`` is read safely without it."""
    monkeypatch.setattr(CheckpointLoader, "_schemes", schemes := dict(CheckpointLoader._schemes))
    allowed = set(torch.serialization.get_safe_globals())
    torch.save({"state_dict": Malicious(tmp_path / "ran")}, tmp_path / "bad.pth")
    init_cfg = dict(type="Pretrained", checkpoint=str(tmp_path / "bad.pth"))
    with pytest.raises(CheckpointError, match="mkdir"):
        LCNet("x0.25", init_cfg=init_cfg).init_weights()
    assert CheckpointLoader._schemes == schemes
    assert set(torch.serialization.get_safe_globals()) == allowed
    use_safe_loader()
    with pytest.raises(CheckpointError, match="mkdir"):
        CheckpointLoader.load_checkpoint(str(tmp_path / "bad.pth"), logger=None)
    with pytest.raises(ValueError, match="s3://"):
        CheckpointLoader.load_checkpoint("s3://bucket/net.pth", logger=None)
    assert not (tmp_path / "ran").exists()


URL = "https://host/a/model.pth?v=1.2"


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """The addresses and checksums that PyTorch's function is called with."""
    calls = []
    torch.save({"a": torch.ones(2)}, tmp_path / "served.pth")

    def copy(url, target, checksum):
        calls.append((url, checksum))
        shutil.copy(tmp_path / "served.pth", target)

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", copy)
    return calls


def test_an_address_is_downloaded_once_and_read(downloads):
    for _ in range(2):
        assert read_checkpoint(URL)["a"].tolist() == [1, 1]
    assert downloads == [(URL, None)]
    assert download("https://host/b/model.pth") != download(URL)


def test_names_of_mmengines_lists(downloads, monkeypatch):
    monkeypatch.setattr(checkpoint, "get_external_models", lambda: {"net": "https://host/net-0123abcd.pth"})
    read_checkpoint("open-mmlab://net")
    assert downloads == [("https://host/net-0123abcd.pth", "0123abcd")]
    for unknown in ("open-mmlab://nett", "s3://bucket/net.pth"):
        with pytest.raises(ValueError, match=f"source='{unknown}'"):
            download(unknown)


@pytest.mark.parametrize(
    ("name", "checksum"), [("net_20210514-0123abcd", "0123abcd"), ("net-20240115", None), ("net-deadbee", None)]
)
def test_the_checksum_in_a_name_is_compared(downloads, name, checksum):
    download(f"https://host/{name}.pth#part")
    assert downloads[0][1] == checksum


def test_a_failed_download_names_the_source(downloads, monkeypatch):
    def fail(*_):
        raise URLError("no route")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(ConnectionError, match="source='https://host/a/"):
        download(URL)


ARCH = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 1, 1, 1))


@pytest.fixture
def save(tmp_path):
    def save_file(content) -> str:
        torch.save(content, tmp_path / "weights.pth")
        return str(tmp_path / "weights.pth")

    return save_file


def test_match_report_and_threshold(save):
    model, other = nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3))
    share, line = match_report(model, {**model.state_dict(), "bias": torch.ones(4), "extra.weight": torch.ones(1)})
    assert share == 0.5
    assert line == "1 of 2 entries match, 1 of another shape (bias), 1 not in the model (extra.weight)"
    before = model.weight.clone()
    with pytest.raises(CheckpointError, match=r"0 of 2 .*min_matched"):
        load_weights(model, save({"state_dict": other.state_dict()}))
    assert torch.equal(model.weight, before)
    state = {f"module.{name}": tensor.half() + 1 for name, tensor in model.state_dict().items()}
    load_weights(model, save({"model": {**state, "extra": torch.ones(1)}, "epoch": 3}))
    assert torch.equal(model.weight, (before.half() + 1).float())
    assert list(model.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize(
    "bias", [torch.tensor([1, 2, 3]), torch.tensor([1j, 2, 3]), torch.tensor([1, torch.nan, 1]), "text"]
)
def test_values_that_are_not_weights(save, bias):
    model = nn.Linear(2, 3)
    file = save({**model.state_dict(), "bias": bias})
    with pytest.raises(CheckpointError, match=r"weights\.pth: .*bias"):
        load_weights(model, file)


@pytest.mark.parametrize("prefix", ["backbone", "backbone."])
@pytest.mark.parametrize("wrapper", ["", "module.", "module._orig_mod."])
def test_pretrained_backbones_are_loaded_by_prefix(save, prefix, wrapper):
    """Of a detector, also below a parallel wrapper; ``backbone`` is not ``backbone2``. A second call changes nothing."""
    state = LiSANet(ARCH).state_dict()
    both = {f"{wrapper}{part}.{n}": t + i for i, part in enumerate(("backbone", "backbone2")) for n, t in state.items()}
    loaded = LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=save({"state_dict": both}), prefix=prefix))
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict(), state, rtol=0, atol=0)
    with torch.no_grad():
        loaded.norm0.bias.fill_(3)
    loaded.init_weights()
    assert (loaded.norm0.bias == 3).all()


@pytest.mark.parametrize("channels", [1, 4])
def test_weights_of_rgb_for_other_input_channels(save, channels):
    state = LiSANet(ARCH).state_dict()
    (stem,) = [name for name, tensor in state.items() if tensor.ndim == 4 and tensor.shape[1] == 3]
    cfg = dict(type="Pretrained", checkpoint=save({"state_dict": state}))
    loaded = LiSANet(ARCH, in_channels=channels, init_cfg=cfg)
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict()[stem], adapt_input_conv(channels, state[stem]))


def test_a_third_of_a_backbone_is_refused(save):
    state = LiSANet(ARCH).state_dict()
    cfg = dict(type="Pretrained", checkpoint=save({"state_dict": dict(list(state.items())[: len(state) // 3])}))
    with pytest.raises(CheckpointError, match=rf"{len(state) // 3} of {len(state)} .*min_matched"):
        LiSANet(ARCH, init_cfg=cfg).init_weights()
    LiSANet(ARCH, init_cfg=dict(cfg, min_matched=0.3)).init_weights()


def test_a_forgotten_prefix_is_named(save):
    state = {f"backbone.{name}": tensor for name, tensor in LiSANet(ARCH).state_dict().items()}
    with pytest.raises(CheckpointError, match=r"0 of .*add prefix='backbone\.'"):
        LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=save({"state_dict": state}))).init_weights()


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
    assert match_report(model, {**model.state_dict(), "_extra_state": torch.ones(1)})[0] == pytest.approx(2 / 3)
    load_weights(other, save(model.state_dict()), min_matched=1)
    assert other.extra == 2.0


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "new" / "weights.pth"
    save_checkpoint({"a": torch.ones(3)}, path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint({"a": torch.zeros(3)}, path)
    assert torch.load(path, weights_only=True)["a"].tolist() == [1, 1, 1]
    with pytest.raises(KeyboardInterrupt), writing_whole(path.with_name("other")):
        raise KeyboardInterrupt
    with suppress(KeyboardInterrupt), atomic_path(path.with_name("folder"), ".mp4") as partial:
        (partial / "file.mp4").mkdir(parents=True)
        raise KeyboardInterrupt
    assert partial.suffix == ".mp4"
    assert os.listdir(path.parent) == ["weights.pth"]


def test_the_newest_checkpoint(tmp_path):
    """``last_checkpoint`` counts; without it, or if its file is not there, the file that was written last."""
    assert latest_checkpoint(tmp_path / "nowhere") is None
    files = [tmp_path / "epoch_9.pth", tmp_path / "iter_2.pth", tmp_path / "best_AP.pth", tmp_path / "other/iter_1.pth"]
    for age, file in enumerate(files):
        save_checkpoint({"a": torch.ones(3)}, file)
        os.utime(file, (1e9 + age, 1e9 + age))
    assert latest_checkpoint(tmp_path) == str(files[1])
    for named, expected in ((files[0], files[0]), (files[3], files[3]), ("/moved/iter_10.pth", files[1])):
        (tmp_path / "last_checkpoint").write_text(str(named))
        assert latest_checkpoint(tmp_path) == str(expected)
    (tmp_path / "last_checkpoint").write_text(str(files[1]))
    files[1].write_bytes(files[1].read_bytes()[:-100])  # cut off by a fault of the disk
    assert latest_checkpoint(tmp_path) == str(files[0])
