"""Checkpoints are whole or not there; one training per folder; a training that gets a signal saves, and can be resumed."""

import os
import signal
from pathlib import Path

import pytest
from filelock import FileLock
from mmengine.config import Config
from mmengine.hooks import Hook

from helpers.toy_runner import runner
from helpers.training import history
from mmlisa.checkpoints import read_checkpoint
from mmlisa.training.config import config_for_training
from mmlisa.training.runner import train
from mmlisa.training.saving import AtomicBackend

ITERATIONS, EPOCHS = dict(iterations=8), dict(epochs=2)  # an epoch has four batches


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


@pytest.mark.parametrize(
    ("number", "length", "at", "name", "rest"),
    [
        (signal.SIGTERM, ITERATIONS, 3, "iter_3.pth", [3, 4, 5, 6, 7]),
        (signal.SIGINT, EPOCHS, 3, "iter_3.pth", [3, 0, 1, 2, 3]),
        (signal.SIGTERM, EPOCHS, 4, "epoch_1.pth", [0, 1, 2, 3]),
    ],
)
def test_an_interrupted_training_is_resumed_after_its_last_iteration(tmp_path, number, length, at, name, rest):
    schedule = dict(param_scheduler=[dict(type="MultiStepLR", milestones=[1], by_epoch="epochs" in length)])
    handler = signal.getsignal(number)
    with pytest.raises(SystemExit) as stopped:
        train(runner(tmp_path, model=dict(signal_at=at, number=number), **length, **schedule))
    assert stopped.value.code == 128 + number
    assert signal.getsignal(number) is handler
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / name)
    saved = read_checkpoint(tmp_path / name)
    assert saved["meta"]["iter"] == at
    cfg = config_for_training(Config(dict(work_dir=str(tmp_path))), resume=True)
    assert (cfg.resume, cfg.load_from) == (True, str(tmp_path / name))

    resumed, places, recorder = runner(tmp_path, resume=True, **length, **schedule), [], Hook()
    recorder.before_train_iter = lambda runner, batch_idx, data_batch=None: places.append(batch_idx)
    resumed.register_hook(recorder)
    train(resumed)
    assert places == rest
    assert sorted(history(tmp_path)[0]) == [*range(1, 9)]
    assert resumed.optim_wrapper.optimizer.state_dict()["state"][0]["step"] == 8
    assert resumed.optim_wrapper.get_lr()["lr"] == pytest.approx([0.01])


@pytest.fixture
def python_handles_sigint():
    """Set Python's own handler, which a process that a script starts in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handles_sigint")
def test_a_second_signal_has_its_usual_effect(tmp_path):
    class Impatient(Hook):
        def before_train_iter(self, runner, batch_idx, data_batch=None):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    stopped = runner(tmp_path)
    stopped.register_hook(Impatient())
    with pytest.raises(KeyboardInterrupt):
        train(stopped)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match="--resume"):
        config_for_training(Config(dict(work_dir=str(tmp_path))), resume=True)
