"""Whole checkpoints, one training per folder, signals; trainings that are resumed, also with another schedule; two processes."""

import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from filelock import FileLock
from mmengine.config import Config
from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.registry import DATASETS, MODELS
from torch import nn

from helpers.toy_runner import VALIDATION, ToyPoints, ToyRegression, history, runner
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


@DATASETS.register_module()
class NotedPoints(ToyPoints):
    """Notes which points are read."""

    read: ClassVar[list[int]] = []

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("randomness", [dict(seed=3), dict(seed=None)])
def test_a_resumed_epoch_has_the_images_that_were_left(tmp_path, randomness):
    points = dict(randomness=randomness, loader=dict(dataset=dict(type="NotedPoints", length=8)), epochs=2)
    NotedPoints.read.clear()
    with pytest.raises(SystemExit):
        train(runner(tmp_path, model=dict(signal_at=2), **points))
    first = [*NotedPoints.read]
    train(runner(tmp_path, resume=True, **points))
    seen = NotedPoints.read
    assert len(first) == 4
    assert sorted(seen[:8]) == sorted(seen[8:]) == [*range(8)]
    assert seen[:8] != seen[8:]


def test_a_training_in_another_thread(tmp_path):
    done = []
    thread = threading.Thread(target=lambda: (train(runner(tmp_path)), done.append(True)))
    thread.start()
    thread.join()
    assert done


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


BY_ITERATION, BY_EPOCH = (
    dict(iterations=4),
    dict(epochs=1, hook=dict(by_epoch=True, interval=1)),
)  # four batches an epoch
LONGER = dict(iterations=12), dict(epochs=3, hook=dict(by_epoch=True, interval=1))


def schedule(by_epoch: bool, epochs: int, **options) -> dict:
    end = epochs if by_epoch else 4 * epochs
    parts = [
        dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=2),
        dict(type="CosineAnnealingLR", by_epoch=by_epoch, begin=0, end=end, T_max=end, **options),
        dict(type="MultiStepLR", by_epoch=by_epoch, milestones=[end // 2], gamma=0.5),
    ]
    return dict(param_scheduler=parts)


def rates(folder) -> dict[int, float]:
    return {iteration: entry["lr"] for iteration, entry in history(folder)[0].items()}


@pytest.mark.parametrize(
    ("short", "long", "options"),
    [
        (BY_ITERATION, LONGER[0], {}),
        (BY_EPOCH, LONGER[1], {}),
        (BY_EPOCH, LONGER[1], dict(convert_to_iter_based=True)),
    ],
)
def test_a_longer_schedule_goes_on_as_if_it_had_been_there_from_the_start(tmp_path, monkeypatch, short, long, options):
    lines = []
    monkeypatch.setattr(MMLogger, "warning", lambda self, line, *_: lines.append(line))
    by_epoch = "epochs" in short
    groups = dict(optim_wrapper=dict(optimizer=dict(type="Adam", lr=0.1), paramwise_cfg=dict(bias_lr_mult=2.0)))
    train(runner(tmp_path / "resumed", **short, **schedule(by_epoch, 1, **options), **groups))
    assert not [line for line in lines if "schedule of the config" in line]
    train(runner(tmp_path / "resumed", **long, **schedule(by_epoch, 3, **options), **groups, resume=True))
    assert any("schedule of the config" in line for line in lines)
    train(runner(tmp_path / "whole", **long, **schedule(by_epoch, 3, **options), **groups))
    resumed, whole = rates(tmp_path / "resumed"), rates(tmp_path / "whole")
    assert [resumed[i] for i in range(5, 13)] == pytest.approx([whole[i] for i in range(5, 13)])
    assert resumed[4] != pytest.approx(whole[4])


def test_the_same_schedule_is_restored_with_the_state_of_the_optimizer(tmp_path, capfd):
    train(runner(tmp_path, **schedule(False, 3)))
    resumed = runner(tmp_path, **schedule(False, 3), resume=True, load_from=str(tmp_path / "iter_4.pth"))
    train(resumed)
    assert "schedule of the config" not in capfd.readouterr().out
    assert [float(state["step"]) for state in resumed.optim_wrapper.optimizer.state.values()] == [6, 6]


def optimizer(kind, **options) -> dict:
    return dict(optim_wrapper=dict(optimizer=dict(type=kind, **options)))


def test_settings_of_the_optimizer_are_the_configs(tmp_path, capfd):
    train(runner(tmp_path, **optimizer("AdamW", lr=0.1, weight_decay=0.05), **schedule(False, 3)))
    changed = optimizer("AdamW", lr=0.1, weight_decay=0.5, betas=(0.5, 0.6))
    resumed = runner(tmp_path, iterations=8, **changed, **schedule(False, 3), resume=True)
    train(resumed)
    (group,) = resumed.optim_wrapper.optimizer.param_groups
    assert (group["weight_decay"], tuple(group["betas"])) == (0.5, (0.5, 0.6))
    assert "weight_decay=0.5, not 0.05" in capfd.readouterr().out


def test_an_optimizer_that_counts_in_its_groups_goes_on(tmp_path):
    train(runner(tmp_path, **optimizer("mmlisa.Lamb", lr=0.1)))
    resumed = runner(tmp_path, iterations=8, **optimizer("mmlisa.Lamb", lr=0.1), resume=True)
    train(resumed)
    assert [int(group["step"]) for group in resumed.optim_wrapper.optimizer.param_groups] == [8]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_another_optimizer_is_refused(tmp_path, kind):
    train(runner(tmp_path, **optimizer("AdamW", lr=0.1)))
    with pytest.raises(ValueError, match=r"another optimizer.*optim_wrapper\.optimizer\.type"):
        train(runner(tmp_path, iterations=8, **optimizer(kind, lr=0.1), resume=True))


@pytest.mark.parametrize("before", [True, False])
def test_averages_that_only_one_side_has_are_named(tmp_path, capfd, before):
    hooks = dict(custom_hooks=[dict(type="EMAHook")])
    train(runner(tmp_path, **(hooks if before else {})))
    train(runner(tmp_path, iterations=8, **({} if before else hooks), resume=True))
    text = "averaged weights become the weights" if before else "the average starts from its weights"
    assert text in capfd.readouterr().out


def test_a_schedule_in_epochs_goes_on_with_shorter_epochs(tmp_path):
    parts = schedule(True, 3, convert_to_iter_based=True)
    del parts["param_scheduler"][0]  # a warm-up that counts iterations
    half = dict(epochs=3, loader=dict(batch_size=4), **parts)
    train(runner(tmp_path / "resumed", **BY_EPOCH, **parts))  # one epoch of four iterations
    train(runner(tmp_path / "resumed", **half, resume=True))  # and two epochs of two
    train(runner(tmp_path / "whole", **half))
    resumed, whole = rates(tmp_path / "resumed"), rates(tmp_path / "whole")
    assert [resumed[i] for i in range(3, 7)] == pytest.approx([whole[i] for i in range(3, 7)])


def in_two_processes(function: Callable[[], None]) -> list[int]:
    """Run a function in forked processes of one group, as a launcher starts them, and return their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in "01":
        if child := os.fork():
            children.append(child)
            continue
        signal.alarm(120)
        address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        os.environ |= dict(WORLD_SIZE="2", RANK=rank, LOCAL_RANK=rank, **address)
        code = 1
        try:
            function()
            code = 0
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@MODELS.register_module()
class ToySynced(ToyRegression):
    """A norm over the images of all processes."""

    def __init__(self, **options):
        super().__init__(**options)
        self.layer = nn.Sequential(nn.SyncBatchNorm(4), nn.Linear(4, 1))


@pytest.mark.nightly
def test_norms_over_processes_become_those_of_each_on_cpus(tmp_path):
    def run() -> None:
        both = runner(tmp_path, launcher="pytorch", model=dict(type="ToySynced"))
        assert not isinstance(both.model.module.layer[0], nn.SyncBatchNorm)
        train(both)

    assert in_two_processes(run) == [0, 0]


@pytest.mark.nightly
def test_two_processes(tmp_path):
    def run(**options) -> None:
        both = runner(tmp_path, iterations=20, launcher="pytorch", **VALIDATION, **options)
        if get_rank() == 0:  # the other one gets the signal or the broken loss
            both.model.module.signal_at = both.model.module.broken_at = -1
        train(both)
        weights = [torch.zeros(4), torch.zeros(4)]
        torch.distributed.all_gather(weights, both.model.module.layer.weight.detach()[0])
        assert torch.equal(*weights)

    assert in_two_processes(lambda: run(model=dict(signal_at=3))) == [143, 143]
    assert read_checkpoint(tmp_path / "iter_10.pth")["meta"]["iter"] == 10
    broken = in_two_processes(lambda: run(resume=True, model=dict(broken_at=4)))
    assert 0 not in broken
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / "iter_12.pth")
    assert in_two_processes(lambda: run(resume=True)) == [0, 0]
    assert (tmp_path / "iter_20.pth").exists()
