"""A training that gets a signal saves, draws and ends; resumed, it is the training that got none."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import Hook

from helpers.toy_runner import VALIDATION, losses, runner
from mmlisa.checkpoints import latest_checkpoint, read_checkpoint
from mmlisa.training import interrupts
from mmlisa.training.interrupts import InterruptHook, Signals
from mmlisa.training.runner import train
from mmlisa.training.saving import AtomicBackend


@pytest.mark.parametrize("epochs", [None, 2])
def test_interrupted_and_resumed_run_repeats_the_whole_one(tmp_path, epochs):
    whole, part = tmp_path / "whole", tmp_path / "part"
    runner(whole, iterations=8, epochs=epochs).train()
    expected = losses(whole)
    assert sorted(expected) == list(range(1, 9))

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        train(runner(part, iterations=8, epochs=epochs, model=dict(signal_at=3)))
    assert stopped.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is handler
    assert sorted(p.name for p in part.glob("*.pth")) == ["iter_2.pth", "iter_3.pth"]
    assert list(part.glob("*/curves.png"))
    assert (part / "last_checkpoint").read_text() == str(part / "iter_3.pth")

    resumed, places = tmp_path / "resumed", []
    rest = runner(resumed, iterations=8, epochs=epochs, load_from=str(part / "iter_3.pth"), resume=True)
    recorder = Hook()
    recorder.before_train_iter = lambda runner, batch_idx, data_batch=None: places.append(batch_idx)
    rest.register_hook(recorder)
    rest.train()
    # Hooks are told the place in the epoch, of four batches, or in the whole run.
    assert places == ([3, 0, 1, 2, 3] if epochs else [3, 4, 5, 6, 7])
    assert losses(resumed) == {step: expected[step] for step in range(4, 9)}
    final = [read_checkpoint(d / "iter_8.pth")["state_dict"] for d in (whole, resumed)]
    assert all(torch.equal(final[0][name], final[1][name]) for name in final[0])


@pytest.mark.parametrize("left_out", ["save_optimizer", "save_param_scheduler"])
def test_a_scheduled_checkpoint_that_cannot_be_resumed_is_completed(tmp_path, left_out):
    """The signal comes in an iteration that the schedule saves, without what resuming needs."""
    schedule = dict(param_scheduler=dict(type="ConstantLR", factor=0.5, end=5, by_epoch=False))
    with pytest.raises(SystemExit):
        train(runner(tmp_path / "part", model=dict(signal_at=4), hook={left_out: False}, **schedule))
    checkpoint = read_checkpoint(tmp_path / "part" / "iter_4.pth")
    assert {"optimizer", "param_schedulers"} <= checkpoint.keys()
    rest = runner(tmp_path / "rest", load_from=str(tmp_path / "part" / "iter_4.pth"), resume=True, **schedule)
    rest.train()
    assert sorted(losses(tmp_path / "rest")) == [5, 6]


def test_the_resumed_training_names_the_checkpoint_of_an_interrupt(tmp_path):
    with pytest.raises(SystemExit):
        train(runner(tmp_path, hook=dict(interval=100), model=dict(signal_at=3)))
    with pytest.raises(FloatingPointError, match=r"last good checkpoint is .*iter_3\.pth"):
        train(runner(tmp_path, hook=dict(interval=100), resume=True, model=dict(broken_at=2)))


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (dict(max_keep_ckpts=1), {"iter_4.pth", "iter_5.pth"}),
        (dict(), {"iter_2.pth", "iter_3.pth", "iter_4.pth", "iter_5.pth"}),
    ],
)
def test_the_next_interrupt_removes_the_checkpoint_of_the_last_one_if_few_are_kept(tmp_path, options, left):
    hook = dict(interval=2, **options)
    for signal_at in (3, 2):
        with pytest.raises(SystemExit):
            train(runner(tmp_path, resume=True, hook=hook, model=dict(signal_at=signal_at)))
    assert {path.name for path in tmp_path.glob("*.pth")} == left


def test_an_interrupt_keeps_a_checkpoint_of_the_schedule(tmp_path):
    """The first interrupt completes it."""
    for signal_at in (2, 1):
        with pytest.raises(SystemExit):
            train(
                runner(tmp_path, resume=True, hook=dict(interval=2, max_keep_ckpts=3), model=dict(signal_at=signal_at))
            )
    assert {path.name for path in tmp_path.glob("*.pth")} == {"iter_2.pth", "iter_3.pth"}


@pytest.mark.parametrize("validating", [False, True])
def test_the_flexible_runner_saves_the_iteration(tmp_path, validating):
    flexible = dict(
        runner_type="FlexibleRunner", strategy=dict(type="SingleDeviceStrategy"), env_cfg=dict(dist_cfg=None)
    )
    stopped = runner(
        tmp_path,
        model=dict(signal_at=-1 if validating else 3),
        **flexible,
        **VALIDATION | dict(train_cfg=dict(by_epoch=False, max_iters=6, val_interval=3)),
    )
    if validating:
        interrupt = Hook()
        interrupt.before_val_epoch = lambda runner: os.kill(os.getpid(), signal.SIGTERM)
        stopped.register_hook(interrupt)
    with pytest.raises(SystemExit):
        train(stopped)
    assert read_checkpoint(tmp_path / "iter_3.pth")["meta"]["iter"] == 3


@pytest.fixture
def signals():
    caught = Signals()
    yield caught
    caught.restore()


def test_a_second_signal_exits_at_once(signals, monkeypatch):
    codes, seconds = [], iter([0.0, 0.5, 2.0])
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(interrupts, "monotonic", lambda: next(seconds))
    signals._note(signal.SIGINT, None)
    signals._note(signal.SIGINT, None)  # a launcher may repeat a signal that the whole process group has got
    assert codes == []
    signals._note(signal.SIGINT, None)
    assert codes == [130]


def test_a_signal_that_the_process_ignores_stays_ignored(signals):
    """A shell makes the background jobs of a script ignore Ctrl-C, and ``nohup`` makes them ignore the end of the session."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signals.catch()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.number == signal.SIGHUP
    finally:
        signals.restore()
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_training_that_fails_restores_the_handlers(tmp_path):
    """In a notebook, an interrupt must stop the next cell."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(FloatingPointError):
        train(runner(tmp_path, model=dict(broken_at=3)))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_signals_caught_twice_are_restored(signals):
    """MMEngine's runner restores nothing if a training fails."""
    before = signal.getsignal(signal.SIGTERM)
    signals.catch()
    signals.catch()
    signals.restore()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_runner_validates_after_an_interrupt(tmp_path):
    stopped = runner(tmp_path, model=dict(signal_at=3), **VALIDATION)
    with pytest.raises(SystemExit):
        train(stopped)
    assert stopped.val() == {"count": 7}


def test_a_signal_that_another_process_got_first_is_not_the_second(signals, monkeypatch):
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("the checkpoint is not complete"))
    signals.number = signal.SIGTERM
    signals._note(signal.SIGTERM, None)


def test_a_signal_is_noted_although_the_terminal_is_gone(signals, monkeypatch):
    """As after Ctrl-C in ``mmlisa train … 2>&1 | tee log``, which ends ``tee`` first."""
    reader, writer = os.pipe()
    os.close(reader)
    stderr = os.dup(2)
    with os.fdopen(os.dup(writer), "w", buffering=1) as text:
        monkeypatch.setattr(sys, "stderr", text)
        os.dup2(writer, 2)
        try:
            signals._note(signal.SIGINT, None)
        finally:
            os.dup2(stderr, 2)
            monkeypatch.undo()
    os.close(writer)
    os.close(stderr)
    assert signals.number == signal.SIGINT


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends the workers")
def test_a_killed_training_leaves_no_workers():
    code = (
        "import multiprocessing, time; from mmlisa.training.interrupts import end_workers_with_process as end; end();"
        "worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,)); worker.start();"
        "print(worker.pid, flush=True); worker.join()"
    )
    training = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    worker = Path("/proc", training.stdout.readline().strip())
    assert worker.is_dir()
    training.kill()
    training.wait()
    deadline = time.monotonic() + 20
    while worker.is_dir() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not worker.is_dir()


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends the workers")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_training_leaves_no_workers_in_groups_of_their_own(method):
    code = (
        "import multiprocessing, time; from mmlisa.training.interrupts import leave_group;"
        f"context = multiprocessing.get_context({method!r});"
        "worker = context.Process(target=leave_group, args=(time.sleep, 600)); worker.start();"
        "print(worker.pid, flush=True); worker.join()"
    )
    training = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    worker, deadline = int(training.stdout.readline()), time.monotonic() + 60
    while os.getpgid(worker) != worker and time.monotonic() < deadline:
        time.sleep(0.1)
    assert os.getpgid(worker) == worker
    training.kill()
    training.wait()
    while Path("/proc", str(worker)).is_dir() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path("/proc", str(worker)).is_dir()


def test_the_last_checkpoint_is_written_whole(tmp_path, monkeypatch):
    paths, put = [], AtomicBackend.put
    monkeypatch.setattr(
        AtomicBackend, "put", lambda self, obj, path: (paths.append(Path(path).name), put(self, obj, path))
    )
    with pytest.raises(SystemExit):
        train(runner(tmp_path, model=dict(signal_at=3)))
    assert paths[-1] == "iter_3.pth"


def test_a_signal_to_all_processes_is_not_their_sum(monkeypatch):
    monkeypatch.setattr(interrupts, "all_reduce", lambda tensor, op: tensor.mul_(2) if op == "sum" else tensor)
    hook = InterruptHook()
    hook.signals.number = 15
    assert hook._requested(SimpleNamespace(optim_wrapper=None))
    assert hook.signals.number == 15


def test_a_signal_that_comes_while_the_processes_ask_each_other_is_not_lost(monkeypatch):
    """The others have not heard of it yet, and all must stop after the same iteration."""
    hook, signals = InterruptHook(), [15]

    def wait(tensor: torch.Tensor, op: str) -> None:
        if signals:
            hook.signals.number = signals.pop()

    monkeypatch.setattr(interrupts, "all_reduce", wait)
    runner = SimpleNamespace(optim_wrapper=None)
    assert [hook._requested(runner), hook._requested(runner)] == [False, True]
    assert hook.signals.number == 15


@pytest.mark.fault
def test_a_signal_that_ends_the_loader_workers_too_does_not_break_the_iteration(tmp_path):
    """A launcher sends it to the whole process group."""

    class Launcher(Hook):
        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            if runner.iter == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                for worker in multiprocessing.active_children():
                    worker.kill()
                    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)

    stopped = runner(tmp_path, loader=dict(num_workers=1))
    stopped.register_hook(Launcher())
    with pytest.raises(SystemExit) as ended:
        train(stopped)
    assert ended.value.code == 143
    assert latest_checkpoint(tmp_path) == str(tmp_path / "iter_3.pth")
    assert "torch" in signal.getsignal(signal.SIGCHLD).__module__
    stopped.train_loop.dataloader_iterator = None  # else PyTorch would report its worker to later tests


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the workers stay in the group")
def test_a_signal_to_the_process_group_leaves_the_loader_workers(tmp_path):
    """torchrun sends it there. The gradients of six batches make a step, so the training needs five more."""

    class Launcher(Hook):
        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            if runner.iter == 0:
                os.killpg(0, signal.SIGTERM)

    if not (process := os.fork()):
        code = 1
        try:
            os.setsid()
            accumulated = dict(optimizer=dict(type="SGD", lr=0.1), accumulative_counts=6)
            stopped = runner(
                tmp_path, iterations=8, loader=dict(num_workers=1), hook=dict(interval=100), optim_wrapper=accumulated
            )
            stopped.register_hook(Launcher())
            train(stopped)
        except SystemExit as ended:
            code = ended.code
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 143
    assert latest_checkpoint(tmp_path) == str(tmp_path / "iter_6.pth")
