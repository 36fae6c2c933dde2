"""Checks before and during a training, on a toy model with MMEngine's real runner."""

import pytest
import torch
from torch import nn

from helpers.toy_runner import TEST, VALIDATION, ToyRegression, runner
from mmlisa.training.runner import test as run_test
from mmlisa.training.runner import train


def test_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(FloatingPointError, match=r"iteration 4: .*loss_fit.*iter_2\.pth"):
        train(runner(tmp_path, model=dict(broken_at=4)))
    assert [p.name for p in tmp_path.glob("*.pth")] == ["iter_2.pth"]


def test_weights_that_another_process_broke_are_not_saved(tmp_path):
    """The own loss is finite, but the gradients are the mean over all processes."""
    stopped = runner(tmp_path)
    stopped.model.layer.weight.register_hook(lambda grad: grad * (float("nan") if stopped.iter == 3 else 1))
    with pytest.raises(FloatingPointError, match=r"iteration 4: layer\.weight"):
        train(stopped)
    assert [p.name for p in tmp_path.glob("*.pth")] == ["iter_2.pth"]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (dict(train=3), r"num_classes=2, but train_dataloader\.dataset has 3 classes"),
        (dict(val=3), r"num_classes=2, but val_dataloader\.dataset has 3 classes"),
        (dict(test=3), r"num_classes=2, but test_dataloader\.dataset has 3 classes"),
        (dict(train=2, val=1), r"val_dataloader\.dataset: label 0 is 'class 2'"),
    ],
)
def test_classes_are_compared_before_the_first_iteration(tmp_path, monkeypatch, classes, message):
    made = runner(tmp_path, **VALIDATION, **TEST)
    made.cfg.model.head = dict(num_classes=2)
    for split, number in classes.items():
        names = [f"class {number - i}" for i in range(number)]
        getattr(made, f"{split}_dataloader").dataset.metainfo = dict(classes=names)
    monkeypatch.setattr(ToyRegression, "train_step", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match=message):
        (run_test if "test" in classes else train)(made)


def test_a_checkpoint_with_extra_states_of_modules_is_saved(tmp_path):
    made = runner(tmp_path, iterations=2)
    made.model.register_state_dict_post_hook(
        lambda module, state, prefix, _: state.update({"_extra_state": {"scale": 1}})
    )
    train(made)
    assert (tmp_path / "iter_2.pth").exists()


def save(path, shape=(1, 4), prefix="layer.", **meta) -> str:
    state = {f"{prefix}weight": torch.zeros(shape), f"{prefix}bias": torch.zeros(1)}
    torch.save({"state_dict": state, "meta": meta}, path)
    return str(path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="0 of 2 entries match"):
        train(runner(tmp_path, load_from=save(tmp_path / "foreign.pth", prefix="other.")))


def guard(made) -> nn.Module:
    return next(hook for hook in made.hooks if type(hook).__name__ == "CheckpointGuardHook")


def test_another_shape_is_refused_in_tests_and_reported_in_training(tmp_path, capfd):
    made = runner(tmp_path, iterations=1, load_from=save(tmp_path / "wide.pth", shape=(3, 4)))
    train(made)
    assert "1 of another shape (layer.weight)" in capfd.readouterr().out
    guard(made).same_shapes = True
    with pytest.raises(ValueError, match=r"layer\.weight"):
        made.load_checkpoint(str(tmp_path / "wide.pth"))


@pytest.mark.parametrize(("classes", "fits"), [(["b", "a"], False), (["a", "b"], True), (["x", "y"], True)])
def test_a_checkpoint_whose_classes_have_another_order_is_not_tested(tmp_path, classes, fits):
    made = runner(tmp_path, load_from=save(tmp_path / "a.pth", dataset_meta=dict(classes=classes)), **TEST)
    made.test_dataloader.dataset.metainfo = dict(classes=("a", "b"))
    guard(made).same_shapes = True
    if fits:
        assert run_test(made) == {"count": 7}
    else:
        with pytest.raises(ValueError, match=r"a\.pth.*metainfo\.classes"):
            run_test(made)


def test_the_console_shows_progress_without_dumps(tmp_path, capfd):
    train(runner(tmp_path, verbose=False))
    console = "".join(capfd.readouterr())
    assert "loss" in console
    assert "System environment" not in console
    (log,) = tmp_path.glob("*/*.log")
    assert "System environment" in log.read_text()
