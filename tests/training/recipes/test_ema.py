"""PicoDet's average against PaddleDetection's own formula."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import EMAHook
from torch import nn

from helpers.toy_runner import runner
from mmlisa.training.recipes.ema import CycleEMAHook, SelfDistillationHook, ThresholdEMA


def test_average_is_the_bias_corrected_one_from_zeros():
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    averaged = ThresholdEMA(model, decay=0.75)  # cut off from the 27th step on
    total, bias = 0.0, 1.0
    for t in range(40):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        averaged.update_parameters(model)
        decay = min(0.75, (1 + t) / (10 + t))
        total, bias = decay * total + (1 - decay) * model.weight.detach(), bias * decay
        torch.testing.assert_close(
            averaged.module.weight.detach(), total / (1 - bias), rtol=1e-2 if t > 25 else 1e-12, atol=0
        )


def test_an_interval_counts_what_was_averaged():
    """Every third weights alone, as if there were no others."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    averaged, sparse = ThresholdEMA(model), ThresholdEMA(model, interval=3)
    for t in range(10):
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        sparse.update_parameters(model)
        if t % 3 == 0:
            averaged.update_parameters(model)
    torch.testing.assert_close(sparse.module.state_dict(), averaged.module.state_dict())


def test_a_cycle_begins_with_an_epoch_and_not_where_it_is_resumed():
    hook = CycleEMAHook(cycle=5)
    hook.ema_model = SimpleNamespace(steps=torch.tensor(7))
    for epoch, batch, steps in ((5, 3, 7), (4, 0, 7), (5, 0, 0)):
        hook.before_train_iter(SimpleNamespace(epoch=epoch), batch)
        assert hook.ema_model.steps == steps


@pytest.mark.parametrize(("epoch", "distils"), [(2, False), (3, True), (5, True)])
def test_a_training_resumed_after_the_first_distilled_epoch_distils(epoch, distils):
    hook, teachers, average = SelfDistillationHook(distill_from=3), [], object()
    hook.src_model, hook.ema_model = SimpleNamespace(set_teacher=teachers.append), SimpleNamespace(module=average)
    hook.before_train_epoch(SimpleNamespace(epoch=epoch))
    assert teachers == [average] * distils


def test_an_average_starts_from_the_loaded_weights(tmp_path):
    state = {"layer.weight": torch.full((1, 4), 3.0), "layer.bias": torch.full((1,), 3.0)}
    torch.save(state, tmp_path / "loaded.pth")
    trained, hook = runner(tmp_path, load_from=str(tmp_path / "loaded.pth")), EMAHook()
    trained.register_hook(hook)
    trained.call_hook("before_run")
    trained.load_or_resume()
    torch.testing.assert_close(hook.ema_model.module.state_dict(), trained.model.state_dict())
    assert torch.equal(trained.model.layer.weight, state["layer.weight"])
