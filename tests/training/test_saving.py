"""Checkpoints are whole or not there; one training per folder."""

import errno
import fcntl
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from helpers.toy_runner import VALIDATION, ToyCount, runner
from mmlisa.checkpoints import CheckpointError, latest_checkpoint, read_checkpoint
from mmlisa.training import saving
from mmlisa.training.runner import train
from mmlisa.training.saving import AtomicBackend, locked


@pytest.fixture
def small_files():
    """The system itself cuts every file off at a limit, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, small_files):
    path = tmp_path / "file.pth"
    AtomicBackend().put(b"old", path)
    small_files(1000)
    with pytest.raises(OSError, match="File too large"):
        AtomicBackend().put(b"x" * 2000, path)
    assert [p.name for p in tmp_path.iterdir()] == ["file.pth"]
    assert path.read_bytes() == b"old"


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def failing_puts(monkeypatch, failures):
    """The disk is full at these puts."""
    whole, calls = AtomicBackend.put, []

    def put(self, obj, filepath):
        calls.append(filepath)
        if len(calls) in failures:
            raise OSError(28, "No space left on device")
        whole(self, obj, filepath)

    monkeypatch.setattr(AtomicBackend, "put", put)


@pytest.mark.parametrize("failure", [2, 3])
def test_a_failed_save_stops_and_the_last_good_checkpoint_stays(tmp_path, monkeypatch, failure):
    failing_puts(monkeypatch, {failure})
    folder = tmp_path / str(failure)
    with pytest.raises(OSError, match=rf"iteration {failure * 2} could not be written.*iter_{failure * 2 - 2}\.pth"):
        train(runner(folder, hook=dict(max_keep_ckpts=1)))
    assert [p.name for p in folder.glob("*.pth")] == [f"iter_{failure * 2 - 2}.pth"]
    assert read_checkpoint(folder / f"iter_{failure * 2 - 2}.pth")["optimizer"]


def test_a_failed_first_save_names_no_checkpoint(tmp_path, monkeypatch):
    failing_puts(monkeypatch, {1})
    made = runner(tmp_path)
    with pytest.raises(OSError, match=r"iteration 2 could not be written.* No checkpoint was saved yet"):
        train(made)
    assert "last_ckpt" not in made.message_hub.runtime_info


def test_a_failed_save_can_be_passed_over(tmp_path, monkeypatch):
    failing_puts(monkeypatch, {2, 3})
    train(runner(tmp_path / "on", iterations=8, hook=dict(on_failure="continue", max_keep_ckpts=2)))
    assert sorted(p.name for p in (tmp_path / "on").glob("*.pth")) == ["iter_2.pth", "iter_8.pth"]


@pytest.mark.parametrize(("failures", "left"), [({2}, [10, 12]), ({5}, [8, 12]), ({2, 4}, [10, 12])])
def test_saves_after_a_failed_one_keep_as_many_as_ever(tmp_path, monkeypatch, failures, left):
    failing_puts(monkeypatch, failures)
    train(runner(tmp_path, iterations=12, hook=dict(on_failure="continue", max_keep_ckpts=2)))
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == sorted(f"iter_{n}.pth" for n in left)
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / f"iter_{left[-1]}.pth")
    assert latest_checkpoint(tmp_path) == str(tmp_path / f"iter_{left[-1]}.pth")


@pytest.mark.parametrize("by_epoch", [False, True])
def test_a_training_whose_result_cannot_be_saved_fails(tmp_path, monkeypatch, by_epoch):
    failing_puts(monkeypatch, {2})
    hook = dict(on_failure="continue", interval=1, by_epoch=by_epoch)
    with pytest.raises(OSError, match=r"could not be written.* The last good one is .*_1\.pth"):
        train(runner(tmp_path, iterations=2, epochs=2 if by_epoch else None, hook=hook))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_killed_save_left_is_removed(tmp_path, elsewhere):
    """Of the schedule, and in the work dir also of an interrupt."""
    folders = [tmp_path / "left", *[tmp_path / "scratch" / "left"] * elsewhere]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / ".iter_2.pth.7.partial").write_bytes(b"half")
    train(runner(folders[0], iterations=2, hook=dict(out_dir=str(tmp_path / "scratch")) if elsewhere else None))
    assert not list(tmp_path.rglob(".*.partial"))


def test_one_training_per_folder_and_no_lock_survives_a_kill(tmp_path):
    ours, theirs = os.pipe()
    if not (process := os.fork()):  # another training
        with locked(tmp_path):
            os.write(theirs, b"in")
            signal.pause()
    try:
        assert os.read(ours, 2) == b"in"
        with pytest.raises(BlockingIOError, match=f"another training .process {process} on"), locked(tmp_path):
            pass
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    with locked(tmp_path):
        pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"work dir .*file/work' cannot be written"), locked(tmp_path / "file" / "work"):
        pass


def test_bad_option():
    from mmlisa.training.saving import CheckpointHook

    with pytest.raises(ValueError, match="on_failure='ignore'; it must be 'stop' or 'continue'"):
        CheckpointHook(on_failure="ignore")


@pytest.mark.fault
def test_what_a_training_starts_from_runs_no_code(tmp_path, monkeypatch):
    """The tools' runner, in a process whose loaders are MMEngine's own."""
    monkeypatch.setattr(CheckpointLoader, "_schemes", {})
    CheckpointLoader.register_scheme("", mmengine_checkpoint.load_from_local)
    torch.save({"state_dict": Malicious(tmp_path / "ran")}, tmp_path / "bad.pth")
    with pytest.raises(CheckpointError, match="could run code"):
        runner(tmp_path / "work", load_from=str(tmp_path / "bad.pth")).train()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("iterations", [4, 6])
def test_a_new_checkpoint_of_the_old_name_stays(tmp_path, iterations):
    """After the second save and after the third: one that removed its own file would find nothing to remove the next time."""
    train(runner(tmp_path, iterations=iterations, hook=dict(max_keep_ckpts=1, filename_tmpl="latest.pth")))
    assert read_checkpoint(tmp_path / "latest.pth")["meta"]["iter"] == iterations


def improving(monkeypatch, hook, scores=(1, 2, 3)):
    """A training validated every second iteration, with ever better results."""
    scores = iter(scores)
    monkeypatch.setattr(ToyCount, "compute_metrics", lambda *_: {"count": next(scores)})
    return dict(
        train_cfg=dict(by_epoch=False, max_iters=6, val_interval=2),
        **VALIDATION,
        hook=dict(save_best="count", rule="greater", **hook),
    )


@pytest.mark.parametrize(("scores", "iteration"), [((1, 2, 3), 6), ((1, 2, 0), 4)])
@pytest.mark.parametrize("by_epoch", [False, True])
def test_the_best_checkpoint_stays_whatever_its_name(tmp_path, monkeypatch, by_epoch, scores, iteration):
    train(runner(tmp_path, **improving(monkeypatch, dict(by_epoch=by_epoch), scores)))
    (best,) = tmp_path.glob("best_*")  # epoch 0 in all three, by epochs
    assert best.name == ("best_count_epoch_0.pth" if by_epoch else f"best_count_iter_{iteration}.pth")
    assert read_checkpoint(best)["meta"]["iter"] == iteration


def test_the_checkpoint_of_the_best_validation_holds_its_metrics(tmp_path, monkeypatch):
    """The curves of a training that is resumed from it show them."""
    train(runner(tmp_path, **improving(monkeypatch, {})))
    history = read_checkpoint(tmp_path / "iter_6.pth")["message_hub"]["runtime_info"]["metric_history"]
    assert [entry["iteration"] for entry in history] == [2, 4, 6]


def test_a_failed_best_checkpoint_leaves_the_one_before(tmp_path, monkeypatch):
    whole, calls = AtomicBackend.put, []

    def put(self, obj, path):
        calls.extend([path] * Path(path).name.startswith("best"))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        whole(self, obj, path)

    options = improving(monkeypatch, dict(max_keep_ckpts=1))
    monkeypatch.setattr(AtomicBackend, "put", put)
    with pytest.raises(OSError, match="the checkpoint of iteration 4 could not be written"):
        train(runner(tmp_path, **options))
    assert [path.name for path in tmp_path.glob("best_*")] == ["best_count_iter_2.pth"]


def test_a_run_resumed_elsewhere_leaves_the_best_checkpoint_of_the_first(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    train(runner(first, **improving(monkeypatch, {})))
    options = improving(monkeypatch, {}, (4,)) | dict(train_cfg=dict(by_epoch=False, max_iters=8, val_interval=2))
    train(runner(second, **options, resume=True, load_from=str(first / "iter_6.pth")))
    assert [path.name for path in first.glob("best_*")] == ["best_count_iter_6.pth"]
    assert [path.name for path in second.glob("best_*")] == ["best_count_iter_8.pth"]


def test_published_weights_can_be_read(tmp_path):
    train(runner(tmp_path, hook=dict(published_keys=["meta", "state_dict"])))
    (published,) = tmp_path.glob("iter_6-*.pth")
    assert read_checkpoint(published).keys() == {"meta", "state_dict"}


@pytest.mark.parametrize("given", [{}, None])
def test_a_config_without_hooks_saves_whole_files_too(tmp_path, given):
    hooks = runner(tmp_path, default_hooks=given).hooks
    assert [type(hook).__module__ for hook in hooks if type(hook).__name__ == "CheckpointHook"] == [
        "mmlisa.training.saving"
    ]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_trains_and_says_so(tmp_path, monkeypatch, caplog, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    said = []
    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setattr(saving, "print_log", lambda message, **_: said.append(message))
    with locked(tmp_path):
        pass
    assert "has no locks: start no second training there" in said[0]
