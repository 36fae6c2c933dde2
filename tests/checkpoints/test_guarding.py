"""Resuming and saving through MMEngine's runner: one adaption, a checksum, whole files."""

import errno

import pytest
import torch
from torch import nn

from mmlisa.checkpoints import (
    CheckpointError,
    add_checksum,
    check_values,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    state_dict_of,
    writing_whole,
)
from mmlisa.training.hooks import CheckpointGuardHook


class Resampled(nn.Module):
    """A module whose parameter depends on the grid, and which counts how often it resamples."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(size))
        self.resampled = 0

    def adapt_state_dict(self, state_dict, prefix, metadata):
        if state_dict[f"{prefix}table"].shape != self.table.shape:
            self.resampled += 1
            state_dict[f"{prefix}table"] = state_dict[f"{prefix}table"].mean().expand(len(self.table)).clone()

    def _load_from_state_dict(self, state_dict, prefix, *args):
        self.adapt_state_dict(state_dict, prefix, {})
        super()._load_from_state_dict(state_dict, prefix, *args)


class Runner:
    def __init__(self, model):
        self.model, self._load_from, self._resume = model, "file.pth", False


def test_weights_are_adapted_once(tmp_path):
    path = tmp_path / "small.pth"
    torch.save({"state_dict": {"0.table": torch.full((4,), 3.0)}}, path)
    model = nn.Sequential(Resampled(8))
    load_weights(model, path)
    assert model[0].resampled == 1
    assert torch.equal(model[0].table, torch.full((8,), 3.0))

    model = nn.Sequential(Resampled(8))
    checkpoint = load_checkpoint(path)
    CheckpointGuardHook(1.0).after_load_checkpoint(Runner(model), checkpoint)
    model.load_state_dict(checkpoint["state_dict"])  # what the runner does next
    assert model[0].resampled == 1


@pytest.mark.parametrize("value", [torch.tensor([1, 2]), torch.tensor([True, False]), torch.tensor([1j, 2]),
                                   torch.tensor([1.0, torch.nan])])  # fmt: skip
def test_values_that_are_no_weights(value):
    ours = nn.Linear(1, 2).state_dict()
    with pytest.raises(CheckpointError, match=r"file\.pth: .*bias"):
        check_values(ours, {"bias": value}, "file.pth")
    check_values(ours, {"bias": torch.ones(2).half()}, "file.pth")


@pytest.mark.parametrize("value", [torch.tensor(1.0), torch.tensor(1j)])
def test_counters_that_are_no_integers(value):
    with pytest.raises(CheckpointError, match=r"num_batches_tracked is torch\.(float|complex)"):
        check_values(nn.BatchNorm1d(2).state_dict(), {"num_batches_tracked": value}, "file.pth")


def test_values_are_looked_at_wherever_weights_are_loaded(tmp_path):
    path, model = tmp_path / "nan.pth", nn.Linear(1, 2)
    save_checkpoint({"state_dict": {name: tensor * torch.nan for name, tensor in model.state_dict().items()}}, path)
    with pytest.raises(CheckpointError, match="NaN"):
        load_weights(model, path)
    with pytest.raises(CheckpointError, match="NaN"):
        CheckpointGuardHook(1.0).after_load_checkpoint(Runner(model), load_checkpoint(path))
    with pytest.raises(CheckpointError, match="3 is a float, not a tensor"):
        state_dict_of({3: 1.0})
    assert not any(p.isnan().any() for p in model.parameters())


def test_what_is_saved_can_be_verified(tmp_path):
    save_checkpoint({"state_dict": {"a": torch.ones(2)}}, tmp_path / "a.pth")
    assert len(load_checkpoint(tmp_path / "a.pth")["meta"]["tensor_sha256"]["state_dict"]) == 64


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    save_checkpoint({"state_dict": {"a": torch.ones(3)}}, path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint({"state_dict": {"a": torch.zeros(3)}}, path)
    assert torch.equal(load_checkpoint(path)["state_dict"]["a"], torch.ones(3))
    assert [file.name for file in tmp_path.iterdir()] == ["weights.pth"]
    with pytest.raises(OSError, match="No space"), writing_whole(tmp_path / "other") as file:
        file.write(b"x")
    assert [file.name for file in tmp_path.iterdir()] == ["weights.pth"]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), writing_whole(tmp_path / "weights.pth"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_parts_of_a_tensor_have_no_checksum():
    """Of sharded weights, each process has a part of its own."""

    class Part(torch.Tensor):
        def cpu(self):
            raise RuntimeError("the other processes must take part")

    checkpoint = {"state_dict": {"whole": torch.ones(2), "part": torch.ones(2).as_subclass(Part)}}
    add_checksum(checkpoint)
    plain = {"state_dict": {"whole": torch.ones(2)}}
    add_checksum(plain)
    assert checkpoint["meta"] == plain["meta"]


def test_exchanged_tensors_do_not_match_their_checksum(tmp_path):
    checkpoint = {"state_dict": {"a": torch.zeros(2), "b": torch.ones(2)}}
    add_checksum(checkpoint)
    checkpoint["state_dict"] = {"b": torch.zeros(2), "a": torch.ones(2)}
    torch.save(checkpoint, tmp_path / "exchanged.pth")
    with pytest.raises(CheckpointError, match="tensors of 'state_dict' do not match their checksum"):
        load_checkpoint(tmp_path / "exchanged.pth")
