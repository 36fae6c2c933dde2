"""A training resumed under other settings, or from a checkpoint that was edited."""

import os
import signal
from contextlib import nullcontext

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import EMAHook

from helpers.toy_runner import VALIDATION, runner
from helpers.training import ROOT
from mmlisa.checkpoints import CheckpointError, checksum, load_checkpoint
from mmlisa.engine.runner import test as run_test
from mmlisa.engine.runner import train
from mmlisa.engine.saving import locked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The checkpoint of a training of six iterations by epochs of four."""
    folder = tmp_path_factory.mktemp("start") / "start"
    train(runner(folder, epochs=1))
    return folder / "iter_4.pth"


def resumed(folder, checkpoint, **options):
    trained = runner(folder, load_from=str(checkpoint), resume=True, **{"epochs": 2, **options})
    train(trained)
    return trained


@pytest.mark.parametrize(
    ("loader", "iterations", "steps"),
    [
        (dict(batch_size=1), 14, 3 + 7),  # four of the first epoch's seven batches are done
        (dict(batch_size=7), 2, 1),
        (dict(num_workers=2), 8, 4),
        (dict(dataset=dict(type="ToyPoints", length=3)), 4, 2),
        (dict(dataset=dict(type="ToyPoints", length=20)), 20, 6 + 10),
    ],
    ids=["smaller batches", "larger batches", "workers", "fewer data", "more data"],
)
def test_other_data_train_to_the_end(tmp_path, start, loader, iterations, steps):
    trained = resumed(tmp_path / "resumed", start, loader=loader)
    assert (trained.epoch, trained.max_iters) == (2, iterations)
    assert trained.model.calls == steps
    assert all(parameter.isfinite().all() for parameter in trained.model.parameters())


def test_the_checkpoints_of_a_step_schedule_are_tested_and_resumed(tmp_path):
    """Of the schedule of all 1x recipes: a warm-up, and steps after 8 and 11 of the 12 epochs, which here have four batches."""
    schedule = Config.fromfile(ROOT / "configs/_base_/schedules/swin_1x.py").param_scheduler
    options = dict(epochs=12, param_scheduler=schedule, hook=dict(interval=10))
    whole = runner(tmp_path / "whole", **options)
    train(whole)
    end = load_checkpoint(tmp_path / "whole" / "iter_48.pth")
    for iteration in (30, 40):  # before the steps, and between them
        checkpoint = tmp_path / "whole" / f"iter_{iteration}.pth"
        split = {name.replace("val", "test", 1): value for name, value in VALIDATION.items()}
        tested = runner(tmp_path / f"tested_{iteration}", **options, **split, load_from=str(checkpoint))
        assert run_test(tested) == {"count": 7}
        rest = resumed(tmp_path / f"rest_{iteration}", checkpoint, **options)
        found = load_checkpoint(tmp_path / f"rest_{iteration}" / "iter_48.pth")
        torch.testing.assert_close(found["state_dict"], end["state_dict"], rtol=0, atol=0)
        assert found["param_schedulers"] == end["param_schedulers"]
        assert rest.optim_wrapper.param_groups[0]["lr"] == whole.optim_wrapper.param_groups[0]["lr"]
    warmed_up = 0.1 * (0.001 + 0.999 * 48 / 499)
    assert whole.optim_wrapper.param_groups[0]["lr"] == pytest.approx(warmed_up * 0.1**2, rel=1e-6)


def test_another_learning_rate_is_reported(tmp_path, start, capsys):
    trained = resumed(tmp_path / "resumed", start, optim_wrapper=dict(optimizer=dict(type="Adam", lr=0.5)))
    assert (
        "continues with the learning rate 0.1 of the checkpoint; the config's 0.5 is not used"
        in capsys.readouterr().out
    )
    assert trained.optim_wrapper.param_groups[0]["lr"] == 0.1
    resumed(tmp_path / "same", start)
    assert "continues with the learning rate" not in capsys.readouterr().out


def test_another_end_of_the_schedule_is_reported(tmp_path, capsys):
    def options(end):
        return dict(param_scheduler=[dict(type="CosineAnnealingLR", by_epoch=False, end=end)])

    train(runner(tmp_path / "start", iterations=4, **options(4)))
    for end in (4, 6):
        resumed(tmp_path / str(end), tmp_path / "start" / "iter_4.pth", **options(end))
        noted = (
            "schedulers of the checkpoint, which end after [4]; the config's ends [6] are not"
            in capsys.readouterr().out
        )
        assert noted == (end == 6)


def test_the_rate_of_a_warm_up_is_not_another_one(tmp_path, capsys):
    warm_up = dict(param_scheduler=[dict(type="LinearLR", start_factor=0.1, by_epoch=False, end=8)])
    train(runner(tmp_path / "start", epochs=1, **warm_up))
    resumed(tmp_path / "resumed", tmp_path / "start" / "iter_4.pth", **warm_up)
    assert "continues with the learning rate" not in capsys.readouterr().out


def test_another_number_of_classes_is_refused(tmp_path, start):
    with pytest.raises(ValueError, match=r"layer\.weight is \[1, 4\] in the checkpoint and \[3, 4\] in the model"):
        resumed(tmp_path / "resumed", start, model=dict(outputs=3))


EDITS = {
    "no iteration": (lambda c: c["meta"].pop("iter"), r"meta\['iter'\] is None, not a count"),
    "a text": (lambda c: c["meta"].update(iter="4"), r"meta\['iter'\] is '4', not a count"),
    "a list": (lambda c: c["meta"].update(epoch=[1]), r"meta\['epoch'\] is \[1\], not a count"),
    "a negative iteration": (lambda c: c["meta"].update(iter=-4), r"meta\['iter'\] is -4"),
    "no meta": (lambda c: c.pop("meta"), r"meta\['epoch'\] is None"),
    "meta is a list": (lambda c: c.update(meta=["epoch", "iter"]), r"meta\['epoch'\] is None"),
    "a seed that is a text": (lambda c: c["meta"].update(seed="3"), r"meta\['seed'\] is '3', not a number"),
    "no optimizer": (lambda c: c.pop("optimizer"), r"its entry 'optimizer' is missing"),
    "optimizer is a list": (lambda c: c.update(optimizer=[1]), r"its entry 'optimizer' is invalid"),
    "scheduler is a text": (lambda c: c.update(param_schedulers="x"), r"its entry 'param_schedulers' is invalid"),
    "message hub is a list": (lambda c: c.update(message_hub=[1]), r"its entry 'message_hub' is invalid"),
}


@pytest.mark.fault
@pytest.mark.parametrize("edit", EDITS)
def test_edited_metadata_are_refused_by_the_documented_exception(tmp_path, start, edit, monkeypatch):
    change, message = EDITS[edit]
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    checkpoint = torch.load(start, weights_only=False)
    change(checkpoint)
    if isinstance(checkpoint.get("meta"), dict):
        checkpoint["meta"].pop(checksum._KEY)  # who edits a file can write a checksum, too
    torch.save(checkpoint, tmp_path / "edited.pth")
    with pytest.raises(CheckpointError, match=message):
        resumed(tmp_path / "resumed", tmp_path / "edited.pth")


@pytest.mark.fault
@pytest.mark.parametrize("kill_worker", [False, True], ids=["signal", "signal to the workers, too"])
def test_a_signal_during_validation_saves_the_trained_weights(tmp_path, kill_worker):
    """The averaged weights are in the model then, and the trained ones in the average."""

    class Interrupt(EMAHook):
        def before_val_epoch(self, runner):
            super().before_val_epoch(runner)
            os.kill(os.getpid(), signal.SIGTERM)

    options = dict(iterations=8, train_cfg=dict(by_epoch=False, max_iters=8, val_interval=4), hook=dict(interval=4))
    whole = runner(tmp_path / "whole", **options, **VALIDATION)
    whole.register_hook(EMAHook(momentum=0.5))
    train(whole)
    expected = load_checkpoint(tmp_path / "whole" / "iter_4.pth")

    data = dict(type="ToyPoints", kill_worker=kill_worker)
    validation = VALIDATION | dict(val_dataloader=VALIDATION["val_dataloader"] | dict(num_workers=1, dataset=data))
    part = runner(tmp_path / "part", **options | dict(hook=dict(interval=100)), **validation)
    part.register_hook(Interrupt(momentum=0.5))
    with pytest.raises(SystemExit) as stopped:
        train(part)
    assert stopped.value.code == 143
    found = load_checkpoint(tmp_path / "part" / "iter_4.pth")
    # In a checkpoint, the averaged weights stand in front, and the trained ones in `ema_state_dict`.
    assert not torch.equal(expected["state_dict"]["layer.weight"], expected["ema_state_dict"]["module.layer.weight"])
    torch.testing.assert_close(found["state_dict"], expected["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(found["ema_state_dict"], expected["ema_state_dict"], rtol=0, atol=0)


@pytest.mark.fault
def test_a_signal_after_a_validation_saves_the_trained_weights(tmp_path):
    options = dict(iterations=8, train_cfg=dict(by_epoch=False, max_iters=8, val_interval=4), **VALIDATION)
    found = []
    for name, signal_at, interval in (("whole", -1, 6), ("part", 6, 100)):
        hook = dict(interval=interval)
        trained = runner(tmp_path / name, model=dict(signal_at=signal_at), hook=hook, **options)
        trained.register_hook(EMAHook(momentum=0.5))
        with pytest.raises(SystemExit) if signal_at > 0 else nullcontext():
            train(trained)
        found.append(load_checkpoint(tmp_path / name / "iter_6.pth"))
    whole, part = found
    torch.testing.assert_close(part["state_dict"], whole["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(part["ema_state_dict"], whole["ema_state_dict"], rtol=0, atol=0)


@pytest.mark.fault
def test_a_killed_training_leaves_no_lock_to_its_workers(tmp_path):
    ours, theirs = os.pipe()
    if not (process := os.fork()):
        with locked(tmp_path):
            worker = os.fork()
            if worker:
                os.write(theirs, str(worker).encode())
            signal.pause()
    worker = int(os.read(ours, 20))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    try:
        os.kill(worker, 0)  # it lives
        with locked(tmp_path):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)


def test_another_programs_rank_does_not_disable_the_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    ours, theirs = os.pipe()
    if not (process := os.fork()):
        with locked(tmp_path):
            os.write(theirs, b"in")
            signal.pause()
    try:
        assert os.read(ours, 2) == b"in"
        with locked(tmp_path, "pytorch"):  # the second process of a launcher
            pass
        with pytest.raises(BlockingIOError, match="another training"), locked(tmp_path):
            pass
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


@pytest.mark.parametrize("signal_at", [3, 7])
def test_larger_batches_train_every_later_epoch(tmp_path, signal_at):
    """Interrupted in the first or the second epoch of four batches, then epochs of one."""
    with pytest.raises(SystemExit):
        train(runner(tmp_path / "part", epochs=4, model=dict(signal_at=signal_at)))
    checkpoint = tmp_path / "part" / f"iter_{signal_at}.pth"
    trained = resumed(tmp_path / "rest", checkpoint, epochs=4, loader=dict(batch_size=7))
    assert trained.model.calls == 4 - (signal_at // 4 + 1)


def test_a_training_without_a_seed_shuffles_as_before(tmp_path):
    with pytest.raises(SystemExit):
        train(runner(tmp_path / "part", epochs=2, randomness=dict(seed=None), model=dict(signal_at=3)))
    seed = load_checkpoint(tmp_path / "part" / "iter_3.pth")["meta"]["seed"]
    options = dict(seed=None, deterministic=False)
    rest = resumed(tmp_path / "rest", tmp_path / "part" / "iter_3.pth", randomness=options)
    assert rest.train_dataloader.sampler.seed == rest.seed == seed
    assert rest.cfg.randomness == {**options, "seed": seed}


def test_the_newest_checkpoint_is_found_without_load_from(tmp_path):
    train(runner(tmp_path, iterations=4))
    assert runner(tmp_path, iterations=8, resume=True)._load_from == str(tmp_path / "iter_4.pth")
