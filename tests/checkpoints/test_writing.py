"""Files that are written completely or not at all."""

import errno
import os
from contextlib import suppress

import pytest
import torch

from mmlisa.checkpoints import atomic_path, save_checkpoint, writing_whole


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
