"""What training scripts save is read, code is refused, damage is named, addresses are downloaded once."""

import os
import shutil
from argparse import Namespace
from collections import Counter, OrderedDict
from urllib.error import URLError

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint
from mmengine.runner.checkpoint import CheckpointLoader
from torch import nn

from mmlisa.checkpoints import (
    CheckpointError,
    download,
    latest_checkpoint,
    read_checkpoint,
    save_checkpoint,
    use_safe_loader,
)
from mmlisa.models.backbones import LCNet


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
    assert found["message_hub"]["runtime_info"] == {"iter": 3}
    assert found["meta"] == {"iter": 3, "text_of_config": "raise SystemExit"}


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
