"""Atomic writing, and the newest of the checkpoints that were written."""

import errno
import os
from contextlib import suppress

import pytest
import torch

from mmlisa.checkpoints import atomic_path, latest_checkpoint, save_checkpoint, writing_whole


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


def test_the_newest_checkpoint_that_is_whole(tmp_path):
    """``last_checkpoint`` counts; without it or with a truncated file, the file that was written last."""
    assert latest_checkpoint(tmp_path / "nowhere") is None
    elsewhere = tmp_path / "elsewhere"
    files = [tmp_path / "epoch_9.pth", tmp_path / "iter_2.pth", elsewhere / "iter_10.pth", tmp_path / "best_AP.pth"]
    for age, file in enumerate(files):
        save_checkpoint({"a": torch.ones(3)}, file)
        os.utime(file, (1e9 + age, 1e9 + age))
    assert latest_checkpoint(tmp_path) == str(files[1])
    for name, expected in ((files[0], files[0]), (files[2], files[2])):
        (tmp_path / "last_checkpoint").write_text(str(name))
        assert latest_checkpoint(tmp_path) == str(expected)
    files[2].write_bytes(files[2].read_bytes()[:-100])
    assert latest_checkpoint(tmp_path) == str(files[1])
    (tmp_path / "last_checkpoint").write_text("/moved/iter_10.pth")
    assert latest_checkpoint(tmp_path) == str(files[1])
