"""A training resumed under other settings, or from a checkpoint that was edited."""

import multiprocessing
import os
import signal
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import CheckpointHook, EMAHook, Hook
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import EpochBasedTrainLoop
from mmlisa.training.seeding import IterationSeedHook

from helpers.toy_runner import VALIDATION, runner
from helpers.training import ROOT
from mmlisa.checkpoints import CheckpointError, checksum, load_checkpoint
from mmlisa.training.hooks import _warn_of_schedule
from mmlisa.training.interrupts import gradients_wait
from mmlisa.training.runner import build_runner, train
from mmlisa.training.runner import test as run_test
from mmlisa.training.saving import locked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The checkpoint of a training of six iterations by epochs of four."""
    folder = tmp_path_factory.mktemp("start") / "start"
    train(runner(folder, epochs=1))
    return folder / "iter_4.pth"


def signal_to_all():
    """SIGTERM to this process, and the end of its loader workers."""
    os.kill(os.getpid(), signal.SIGTERM)
    for worker in multiprocessing.active_children():
        worker.kill()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)


def resumed(folder, checkpoint, **options):
    trained = runner(folder, load_from=str(checkpoint), resume=True, **{"epochs": 2, **options})
    train(trained)
    return trained


@pytest.mark.parametrize(
    ("loader", "iterations", "steps"),
    [
        (dict(batch_size=1), 14, 3 + 7),  # four of the first epoch's seven batches are done
        (dict(batch_size=7), 5, 1),
        (dict(num_workers=2), 8, 4),
        (dict(dataset=dict(type="ToyPoints", length=3)), 6, 2),
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


def test_a_checkpoint_without_its_schedulers_is_reported(tmp_path, capsys):
    schedule = dict(param_scheduler=[dict(type="CosineAnnealingLR", by_epoch=False, end=8)])
    train(runner(tmp_path / "start", iterations=4, hook=dict(save_param_scheduler=False), **schedule))
    resumed(tmp_path / "resumed", tmp_path / "start" / "iter_4.pth", **schedule)
    assert "has no state of learning-rate schedulers; those of the config begin anew" in capsys.readouterr().out


def test_averaged_weights_without_their_hook_are_reported(tmp_path, capsys):
    averaged = runner(tmp_path / "start", iterations=4)
    averaged.register_hook(EMAHook(momentum=0.5))
    train(averaged)
    resumed(tmp_path / "resumed", tmp_path / "start" / "iter_4.pth")
    assert "the config has no EMAHook: the training continues from the averages" in capsys.readouterr().out


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
@pytest.mark.parametrize("moment", ["after_train_iter", "before_val_epoch", "after_val_epoch"])
@pytest.mark.parametrize(("epochs", "last"), [(None, 6), (2, 8)], ids=["iterations", "epochs"])
def test_a_training_interrupted_at_its_last_validation_gets_its_result(tmp_path, epochs, last, moment):
    validated = []
    schedule = (
        dict(max_epochs=epochs, val_interval=9) if epochs else dict(by_epoch=False, max_iters=last, val_interval=9)
    )
    options = dict(
        epochs=epochs,
        train_cfg=schedule,
        hook=dict(by_epoch=bool(epochs), save_best="count", rule="greater"),
        **VALIDATION,
    )
    part = runner(tmp_path, **options)
    interrupt = Hook()

    def at_the_end(runner, batch_idx=None, **results):
        if moment != "after_train_iter" or runner.iter == last - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    setattr(interrupt, moment, at_the_end)
    part.register_hook(interrupt)
    with pytest.raises(SystemExit):
        train(part)
    finished = moment == "after_val_epoch"
    assert len(list(tmp_path.glob("best_count_*.pth"))) == finished

    rest = runner(tmp_path, resume=True, **options)
    recorder = Hook()
    recorder.after_val_epoch = lambda runner, metrics: validated.append((runner.epoch, runner.iter, metrics))
    rest.register_hook(recorder)
    train(rest)
    assert validated == ([] if finished else [(epochs or 0, last, {"count": 7})])
    assert rest.model.calls == 0
    assert len(list(tmp_path.glob("best_count_*.pth"))) == 1


@pytest.mark.fault
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (dict(val_interval=3), [3, 6]),
        (dict(val_interval=5, dynamic_intervals=[(2, 3)]), [3, 6]),
        (dict(val_interval=3, val_begin=4), [6]),
        (dict(val_interval=4), [4, 6]),
    ],
    ids=["due", "another interval by then", "before the first", "not due"],
)
def test_an_interrupt_before_a_validation_does_not_skip_it(tmp_path, loop, expected):
    options = dict(train_cfg=dict(by_epoch=False, max_iters=6, **loop), hook=dict(interval=100), **VALIDATION)
    validated, recorder = [], Hook()
    recorder.after_val_epoch = lambda runner, metrics: validated.append(runner.iter)
    for signal_at in (3, -1):
        part = runner(tmp_path, resume=True, model=dict(signal_at=signal_at), **options)
        part.register_hook(recorder)
        with pytest.raises(SystemExit) if signal_at > 0 else nullcontext():
            train(part)
        assert validated == (expected if signal_at < 0 else [])


@pytest.mark.fault
@pytest.mark.parametrize("at", [1, 6], ids=["averaged weights", "trained weights"])
def test_a_signal_while_both_weights_are_validated_stops_after_the_second(tmp_path, at):
    """mmpretrain's hook validates the trained weights where it exchanges them, after four batches of the averaged ones."""
    both = pytest.importorskip("mmpretrain.engine.hooks.ema_hook").EMAHook

    class Interrupt(Hook):
        def __init__(self):
            self.batches = 0

        def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            self.batches += 1
            if self.batches == at:
                os.kill(os.getpid(), signal.SIGTERM)

    options = dict(train_cfg=dict(by_epoch=False, max_iters=8, val_interval=4), **VALIDATION)
    found = []
    for name, hooks in (("whole", []), ("part", [interrupt := Interrupt()])):
        trained = runner(tmp_path / name, **options, hook=dict(interval=100 if hooks else 4))
        for hook in (both(momentum=0.5, evaluate_on_origin=True), *hooks):
            trained.register_hook(hook)
        with pytest.raises(SystemExit) if hooks else nullcontext():
            train(trained)
        found.append(load_checkpoint(tmp_path / name / "iter_4.pth"))
    assert interrupt.batches == 8
    whole, part = found
    assert not torch.equal(whole["state_dict"]["layer.weight"], whole["ema_state_dict"]["module.layer.weight"])
    torch.testing.assert_close(part["state_dict"], whole["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(part["ema_state_dict"], whole["ema_state_dict"], rtol=0, atol=0)


@pytest.mark.fault
@pytest.mark.parametrize("moment", ["before_val_epoch", "after_val_epoch"])
def test_a_signal_at_an_end_of_a_validation_saves_the_trained_weights(tmp_path, moment):
    """The EMA hook has just exchanged the weights. The loader workers get the signal, too."""

    class Interrupt(Hook):
        priority = "LOW"

    setattr(Interrupt, moment, lambda self, runner, metrics=None: signal_to_all())

    options = dict(
        train_cfg=dict(by_epoch=False, max_iters=6, val_interval=3), loader=dict(num_workers=1), **VALIDATION
    )
    found = []
    for name, hooks in (("whole", []), ("part", [Interrupt()])):
        trained = runner(tmp_path / name, **options, hook=dict(interval=100 if hooks else 3))
        for hook in (EMAHook(momentum=0.5), *hooks):
            trained.register_hook(hook)
        with pytest.raises(SystemExit) if hooks else nullcontext():
            train(trained)
        trained.train_loop.dataloader_iterator = None  # else PyTorch would report its worker to later tests
        found.append(load_checkpoint(tmp_path / name / "iter_3.pth"))
    whole, part = found
    assert part["meta"]["iter"] == 3
    torch.testing.assert_close(part["state_dict"], whole["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(part["ema_state_dict"], whole["ema_state_dict"], rtol=0, atol=0)


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


def test_the_checkpoint_of_an_epoch_is_continued_with_all_of_the_next_one(tmp_path):
    """Epochs of four batches; the schedule saves the first one when it ends."""
    train(runner(tmp_path / "part", epochs=1, hook=dict(by_epoch=True, interval=1)))
    trained = resumed(tmp_path / "rest", tmp_path / "part" / "epoch_1.pth", epochs=3)
    assert (trained.epoch, trained.iter, trained.model.calls) == (3, 12, 8)


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


def test_a_second_folder_of_checkpoints_is_continued(tmp_path):
    """``out_dir`` holds those of the schedule, the work dir those of an interrupt."""
    options = dict(hook=dict(out_dir=str(tmp_path / "scratch")))
    with pytest.raises(SystemExit):
        train(runner(tmp_path / "run", model=dict(signal_at=3), **options))
    assert (tmp_path / "run" / "iter_3.pth").is_file()
    train(runner(tmp_path / "run", resume=True, **options))
    last = tmp_path / "scratch" / "run" / "iter_6.pth"
    assert runner(tmp_path / "run", iterations=8, resume=True, **options)._load_from == str(last)


def test_a_checkpoint_of_mmengine_begins_an_epoch_of_another_length(tmp_path, start):
    checkpoint = load_checkpoint(start)
    checkpoint["message_hub"]["runtime_info"].pop("mmlisa_epoch_start")
    checkpoint["meta"]["epoch"] = 1
    for batch_size, steps in ((1, 7), (2, 4), (4, 2)):
        torch.save(checkpoint, tmp_path / "theirs.pth")
        loader = dict(batch_size=batch_size)
        assert resumed(tmp_path / str(batch_size), tmp_path / "theirs.pth", loader=loader).model.calls == steps


@pytest.mark.parametrize(("batch_size", "whole"), [(1, 4 + 3 * 7), (7, 7 + 3 * 1)])
def test_gradients_are_accumulated_to_the_end_with_other_batches(tmp_path, batch_size, whole):
    options = dict(optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.01), accumulative_counts=2), epochs=4)
    with pytest.raises(SystemExit):
        train(runner(tmp_path / "part", model=dict(signal_at=8), **options))  # the last batch of the second epoch
    loader = dict(batch_size=batch_size)
    rest = resumed(tmp_path / "rest", tmp_path / "part" / "iter_8.pth", loader=loader, **options)
    assert rest.max_iters == rest.optim_wrapper._max_counts == rest.optim_wrapper._inner_count == whole


def test_an_interrupt_waits_for_the_step_of_accumulated_gradients(tmp_path):
    """No checkpoint holds the gradients. The validation after the third iteration is in the middle of four."""
    options = dict(
        train_cfg=dict(by_epoch=False, max_iters=6, val_interval=3),
        optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.01), accumulative_counts=4),
        hook=dict(interval=100),
        **VALIDATION,
    )
    train(whole := runner(tmp_path / "whole", **options))
    with pytest.raises(SystemExit):
        train(runner(tmp_path / "part", model=dict(signal_at=2), **options))
    train(rest := runner(tmp_path / "rest", load_from=str(tmp_path / "part" / "iter_4.pth"), resume=True, **options))
    torch.testing.assert_close(rest.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_an_interrupt_waits_for_the_steps_of_several_optimizers():
    parameter = torch.ones(1, requires_grad=True)
    wrappers = {str(n): OptimWrapper(torch.optim.SGD([parameter], lr=0.1), accumulative_counts=n) for n in (1, 2, 3)}
    found = []
    for _ in range(6):
        for wrapper in wrappers.values():
            wrapper.backward(parameter.sum())
        found.append(gradients_wait(SimpleNamespace(optim_wrapper=OptimWrapperDict(**wrappers))))
    assert found == [True, True, True, True, True, False]


@pytest.mark.parametrize("at", [1, 3])
def test_the_checkpoints_of_any_schedule_are_resumed(tmp_path, at):
    """OneCycleLR keeps a function in its state, and the names of a data set may be nested."""
    schedule = [dict(type="OneCycleLR", eta_max=0.1, total_steps=8, by_epoch=False)]
    stopped = runner(tmp_path / "part", iterations=8, param_scheduler=schedule, model=dict(signal_at=at))
    stopped.train_dataloader.dataset.metainfo = Config(dict(a=dict(b=dict(c=[1])))).a
    with pytest.raises(SystemExit):
        train(stopped)
    checkpoint = tmp_path / "part" / f"iter_{at}.pth"
    assert load_checkpoint(checkpoint)["meta"]["dataset_meta"] == {"b": {"c": [1]}}
    rest = resumed(tmp_path / "rest", checkpoint, iterations=8, epochs=None, param_scheduler=schedule)
    train(whole := runner(tmp_path / "whole", iterations=8, param_scheduler=schedule))
    torch.testing.assert_close(rest.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_a_schedule_of_weights_alone_does_not_replace_what_an_interrupt_saves(tmp_path):
    with pytest.raises(SystemExit):
        train(runner(tmp_path, model=dict(signal_at=4), hook=dict(save_optimizer=False)))
    assert load_checkpoint(tmp_path / "iter_4.pth")["optimizer"]
    assert runner(tmp_path, resume=True)._load_from == str(tmp_path / "iter_4.pth")


def test_several_optimizers_resume(tmp_path):
    wrapper = OptimWrapperDict(a=OptimWrapper(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)))
    schedulers = {"a": [SimpleNamespace(end=4)]}
    found = SimpleNamespace(optim_wrapper=wrapper, param_schedulers=schedulers)
    _warn_of_schedule(found, {"optimizer": wrapper.state_dict(), "param_schedulers": {"a": [{"end": 8}]}})


def test_a_dumped_config_trains_with_the_options_of_the_command(tmp_path):
    dumped = runner(tmp_path / "first").cfg
    dumped.work_dir = str(tmp_path / "second")
    kinds = [type(hook).__name__ for hook in build_runner(dumped, 0.25).hooks]
    assert len(kinds) == len(set(kinds))
    guards = [h for h in build_runner(dumped, 0.25).hooks if type(h).__name__ == "CheckpointGuardHook"]
    assert [guard.min_matched for guard in guards] == [0.25]


def test_a_config_in_the_work_dir_is_not_overwritten(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text := f"work_dir = {str(tmp_path)!r}  # here\nmodel = dict(type='ToyRegression')\n")
    with pytest.raises(ValueError, match=r"holds the config 'mine\.py'.* --work-dir .*/mine"):
        build_runner(Config.fromfile(path), 0.5)
    assert path.read_text() == text


def test_a_dumped_config_is_continued_in_its_folder(tmp_path):
    runner(tmp_path)
    (dumped,) = tmp_path.glob("*.py")
    assert build_runner(Config.fromfile(dumped), 0.5).cfg.filename == str(dumped)


def test_new_style_configs_get_the_same_hooks_and_loop(tmp_path):
    made = runner(
        tmp_path,
        epochs=1,
        train_cfg=dict(type=EpochBasedTrainLoop, max_epochs=1),
        custom_hooks=[dict(type=IterationSeedHook)],
        default_hooks=dict(checkpoint=dict(type=CheckpointHook)),
    )
    train(made)
    assert {type(made.train_loop).__module__, type(made.train_dataloader.dataset).__module__} == {
        "mmlisa.training.loops",
        "mmlisa.training.seeding",
    }
    assert [type(h).__module__ for h in made.hooks if isinstance(h, CheckpointHook)] == ["mmlisa.training.saving"]


@pytest.mark.fault
def test_a_signal_at_the_end_of_an_epoch_does_not_repeat_it(tmp_path):
    """Of two epochs of four batches. The loader workers, which stay for the next epoch, get the signal, too."""

    class Interrupt(Hook):
        def after_train_epoch(self, runner):
            signal_to_all()

    stopped = runner(tmp_path / "part", epochs=2, loader=dict(num_workers=1, persistent_workers=True))
    stopped.register_hook(Interrupt())
    with pytest.raises(SystemExit) as ended:
        train(stopped)
    stopped.train_dataloader._iterator._shutdown_workers()  # else PyTorch would report its worker to later tests
    assert ended.value.code == 143
    rest = resumed(tmp_path / "rest", tmp_path / "part" / "iter_4.pth")
    assert (rest.epoch, rest.iter, rest.model.calls) == (2, 8, 4)


@pytest.mark.fault
@pytest.mark.parametrize(("epochs", "expected"), [(None, [3, 6]), (2, [4, 8])], ids=["iterations", "epochs"])
@pytest.mark.parametrize("at", [0, 1], ids=["in the middle", "at the end"])
def test_a_validation_in_which_the_training_was_killed_is_run(tmp_path, epochs, expected, at):
    loop = dict(max_epochs=epochs) if epochs else dict(by_epoch=False, max_iters=6, val_interval=3)
    hook = dict(by_epoch=bool(epochs), interval=1 if epochs else 3, save_best="count", rule="greater")
    options = dict(epochs=epochs, train_cfg=loop, hook=hook, **VALIDATION)

    class Killed(Exception):
        pass

    class Kill(Hook):
        def before_val_epoch(self, runner):
            if runner.iter == expected[at]:
                raise Killed

    killed = runner(tmp_path, **options)
    killed.register_hook(Kill())
    with pytest.raises(Killed):
        train(killed)
    validated, recorder = [], Hook()
    recorder.after_val_epoch = lambda runner, metrics: validated.append(runner.iter)
    rest = runner(tmp_path, resume=True, **options)
    rest.register_hook(recorder)
    train(rest)
    assert validated == expected[at:]
    assert len(list(tmp_path.glob("best_count_*.pth"))) == 1
