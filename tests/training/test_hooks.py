"""Hooks on a toy model: a few parameters, real runner."""

import sys
from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import LoggerHook
from mmengine.optim import AmpOptimWrapper, ApexOptimWrapper, OptimWrapperDict
from torch import nn

from helpers.toy_runner import VALIDATION, ToyRegression, losses, runner
from mmlisa.training.hooks import FiniteLossHook, ProgressHook
from mmlisa.training.runner import train


def test_resumed_run_repeats_the_whole_one(tmp_path):
    runner(tmp_path / "whole").train()
    whole = losses(tmp_path / "whole")
    assert sorted(whole) == [1, 2, 3, 4, 5, 6]
    assert len(set(whole.values())) == 6, "losses that do not vary would prove nothing"
    # Stopped between two checkpoints, as a crash does.
    runner(tmp_path / "part", iterations=5).train()
    runner(tmp_path / "rest", load_from=str(tmp_path / "part" / "iter_4.pth"), resume=True).train()
    assert losses(tmp_path / "rest") == {step: whole[step] for step in (5, 6)}


@pytest.mark.parametrize("broken", ["nan", "inf"])
def test_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path, broken):
    stopped = runner(tmp_path / broken, model=dict(broken_at=4, broken=float(broken)))
    with pytest.raises(FloatingPointError, match=rf"(?s)iteration 4: .*loss_fit is {broken}.*iter_2\.pth"):
        train(stopped)
    assert [p.name for p in (tmp_path / broken).glob("*.pth")] == ["iter_2.pth"]
    assert list((tmp_path / broken).glob("*/curves.png"))


def test_gradients_that_are_not_finite_stop_it_too(tmp_path, monkeypatch):
    """Their norm overflows although the loss is finite."""
    stopped = runner(tmp_path, optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1), clip_grad=dict(max_norm=1)))
    stopped.model.layer.weight.register_hook(lambda grad: grad * (1e38 if stopped.iter == 2 else 1))
    with pytest.raises(FloatingPointError, match=r"iteration 3: grad_norm is inf .*iter_2\.pth"):
        train(stopped)
    assert [p.name for p in tmp_path.glob("*.pth")] == ["iter_2.pth"]


@pytest.mark.parametrize("kind", [AmpOptimWrapper, ApexOptimWrapper])
@pytest.mark.parametrize("several", [False, True])
def test_steps_that_mixed_precision_skips_do_not_stop_it(tmp_path, kind, several):
    wrapper = kind.__new__(kind)  # building it needs a GPU
    wrapper.clip_grad_kwargs = dict(max_norm=1)
    made = runner(tmp_path)
    made.optim_wrapper = OptimWrapperDict(a=wrapper) if several else wrapper
    made.message_hub.update_scalar("train/grad_norm", float("inf"))
    FiniteLossHook().after_train_iter(made, 0)


def test_an_infinite_norm_from_before_resuming_does_not_stop_it(tmp_path):
    made = runner(tmp_path, iterations=2)
    made.message_hub.update_scalar("train/grad_norm", float("inf"))
    train(made)


def test_a_config_that_replaces_the_hooks_stops_at_such_a_loss_too(tmp_path):
    stopped = runner(tmp_path, model=dict(broken_at=1), custom_hooks=[dict(type="EmptyCacheHook")])
    assert sum(isinstance(hook, FiniteLossHook) for hook in stopped.hooks) == 1
    with pytest.raises(FloatingPointError):
        train(stopped)
    named = runner(tmp_path / "named", custom_hooks=[dict(type=FiniteLossHook)])
    assert sum(isinstance(hook, FiniteLossHook) for hook in named.hooks) == 1


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_the_number_of_classes_is_compared_with_the_data_before_the_first_iteration(tmp_path, monkeypatch, split):
    points = dict(batch_size=2, num_workers=0, dataset=dict(type="ToyPoints"), sampler=dict(type="DefaultSampler"))
    evaluation = {
        f"{name}_{part}": value
        for name, loop in (("val", "ValLoop"), ("test", "TestLoop"))
        for part, value in (("dataloader", points), ("evaluator", dict(type="DumpResults", out_file_path="a.pkl")),
                            ("cfg", dict(type=loop)))
    }  # fmt: skip
    made = runner(tmp_path, **evaluation)
    made.cfg.model.head = dict(num_classes=2)
    getattr(made, f"{split}_dataloader").dataset.metainfo = dict(classes=("a", "b", "c"))
    monkeypatch.setattr(ToyRegression, "train_step", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match=rf"num_classes=2, but {split}_dataloader\.dataset has 3 classes"):
        (made.test if split == "test" else made.train)()


def test_a_class_that_the_validation_lacks_is_noticed(tmp_path):
    made = runner(tmp_path, **VALIDATION)
    made.train_dataloader.dataset.metainfo = dict(classes=("cat", "dog", "newt"))
    made.val_dataloader.dataset.metainfo = dict(classes=("cat", "newt"))
    with pytest.raises(
        ValueError, match=r"val_dataloader\.dataset: label 1 is 'dog' in the training data and 'newt' here"
    ):
        made.train()


def test_joined_data_sets_with_other_classes_each_train(tmp_path):
    made = runner(tmp_path, iterations=2)
    made.train_dataloader.dataset.metainfo = [dict(classes=("a",)), dict(classes=("b",))]
    made.train()
    assert sorted(losses(tmp_path)) == [1, 2]


def test_a_warm_up_longer_than_the_epochs_is_noted(tmp_path, capfd):
    for end, noted in ((200, True), (2, False)):
        made = runner(tmp_path / str(end), epochs=1, param_scheduler=[dict(type="LinearLR", by_epoch=False, end=end)])
        made.train()
        assert (f"later: param_scheduler.0.end={end}" in "".join(capfd.readouterr())) == noted


@pytest.mark.parametrize(("length", "interval"), [(dict(epochs=1), 3), (dict(iterations=20), 2)])
def test_progress_is_reported(tmp_path, capfd, monkeypatch, length, interval):
    resource = pytest.importorskip("resource")
    in_kibibytes = SimpleNamespace(ru_maxrss=3 * 2**20)
    monkeypatch.setattr(resource, "getrusage", lambda who: in_kibibytes)
    monkeypatch.setattr(sys, "platform", "linux")
    made = runner(tmp_path, **length, loader=dict(dataset=dict(type="ToyPoints", length=60)))
    (logger,) = (hook for hook in made.hooks if isinstance(hook, LoggerHook))
    logger.interval = 50
    train(made)
    assert logger.interval == interval, "ten times in the 30 iterations of an epoch, or in 20 of all"
    assert "".join(capfd.readouterr()).count("The first iteration took") == 1
    assert made.message_hub.get_scalar("train/memory").current() == 3 * 2**10, "memory is not in MiB"


def test_the_time_that_is_left():
    messages = []
    time = SimpleNamespace(current=lambda: 90.04)
    hub = SimpleNamespace(update_scalar=lambda *_: None, log_scalars={"train/time": time}, get_scalar=lambda name: time)
    half_way = SimpleNamespace(iter=100, max_iters=141, message_hub=hub, logger=SimpleNamespace(info=messages.append))
    ProgressHook().after_train_iter(half_way, 0)
    (message,) = messages
    assert "took 90.0 s. At this pace, the other 40 take 1:00:02;" in message


def test_curves_are_drawn(tmp_path):
    runner(tmp_path / "curves").train()
    (picture,) = (tmp_path / "curves").glob("*/curves.png")
    assert picture.stat().st_size > 10_000


def test_foreign_checkpoint_is_refused(tmp_path):
    path = tmp_path / "foreign.pth"
    torch.save({"state_dict": nn.Linear(3, 3).state_dict()}, path)
    with pytest.raises(ValueError, match="0 of 2 entries match"):
        runner(tmp_path / "foreign", load_from=str(path)).train()


def test_a_checkpoint_of_other_shapes_is_refused_in_tests_and_said_in_training(tmp_path, capfd):
    path = tmp_path / "wide.pth"
    torch.save({"state_dict": {"layer.weight": torch.zeros(3, 4), "layer.bias": torch.zeros(1)}}, path)
    trained = runner(tmp_path / "train", load_from=str(path))
    trained.train()
    assert "layer.weight is [3, 4] in the checkpoint and [1, 4] in the model" in capfd.readouterr().out
    trained.load_or_resume()
    hook = next(hook for hook in trained.hooks if type(hook).__name__ == "CheckpointGuardHook")
    hook.same_shapes = True
    with pytest.raises(ValueError, match=r"layer.weight is \[3, 4\] in the checkpoint and \[1, 4\] in the model"):
        trained.load_checkpoint(str(path))


def test_a_killed_worker_is_named_with_the_last_checkpoint(tmp_path):
    dataset = dict(type="ToyPoints", kill_worker=True)
    with pytest.raises(ChildProcessError, match="num_workers"):
        train(runner(tmp_path / "killed", loader=dict(dataset=dataset, num_workers=1)))
