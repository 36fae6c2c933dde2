"""The schedule of a training that is resumed with another config."""

import pytest
from mmengine.logging import MMLogger

from helpers.toy_runner import runner
from helpers.training import history
from mmlisa.training.runner import train

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
    (line,) = [line for line in lines if "schedule of the config" in line]
    assert line.count("epoch" if by_epoch else "iteration") == 2
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


def test_a_schedule_in_epochs_goes_on_with_shorter_epochs(tmp_path):
    parts = schedule(True, 3, convert_to_iter_based=True)
    del parts["param_scheduler"][0]  # a warm-up that counts iterations
    half = dict(epochs=3, loader=dict(batch_size=4), **parts)
    train(runner(tmp_path / "resumed", **BY_EPOCH, **parts))  # one epoch of four iterations
    train(runner(tmp_path / "resumed", **half, resume=True))  # and two epochs of two
    train(runner(tmp_path / "whole", **half))
    resumed, whole = rates(tmp_path / "resumed"), rates(tmp_path / "whole")
    assert [resumed[i] for i in range(5, 9)] == pytest.approx([whole[i] for i in range(3, 7)])


def test_the_config_counts_where_one_of_both_has_no_schedule(tmp_path):
    train(runner(tmp_path, **BY_ITERATION))
    train(runner(tmp_path, iterations=8, **schedule(False, 3), resume=True))
    assert rates(tmp_path)[4] == 0.1
    train(runner(tmp_path / "whole", iterations=8, **schedule(False, 3)))
    assert rates(tmp_path)[8] == pytest.approx(rates(tmp_path / "whole")[8])
    train(runner(tmp_path, **LONGER[0], resume=True))
    assert rates(tmp_path)[12] == 0.1
