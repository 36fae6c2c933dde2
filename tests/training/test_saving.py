"""Checkpoints are whole or not there; one training per folder."""

from pathlib import Path

import pytest
from filelock import FileLock

from helpers.toy_runner import runner
from mmlisa.training.runner import train
from mmlisa.training.saving import AtomicBackend


def test_every_checkpoint_is_written_atomically(tmp_path, monkeypatch):
    written, put = [], AtomicBackend.put
    monkeypatch.setattr(
        AtomicBackend, "put", lambda self, obj, path: (written.append(Path(path).name), put(self, obj, path))
    )
    with pytest.raises(SystemExit):
        train(runner(tmp_path, model=dict(signal_at=5)))
    assert written == ["iter_2.pth", "iter_4.pth", "iter_5.pth"]
    assert {path.name for path in tmp_path.glob("*.pth")} == {*written}


def test_a_second_training_in_the_folder_is_refused(tmp_path):
    with FileLock(tmp_path / ".lock"), pytest.raises(BlockingIOError, match="--work-dir"):
        train(runner(tmp_path))
    train(runner(tmp_path))


def test_incomplete_checkpoints_of_a_killed_training_are_removed(tmp_path):
    (tmp_path / ".iter_2.pth.123.partial").touch()
    train(runner(tmp_path))
    assert not list(tmp_path.glob(".*partial"))
