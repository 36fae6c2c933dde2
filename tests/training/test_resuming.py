"""A training that was killed is resumed from its last checkpoint."""

import os
import signal

import pytest
from mmengine.config import Config

from helpers.toy_runner import losses, runner
from mmlisa.checkpoints import load_checkpoint
from mmlisa.training.runner import set_resume, train

SCHEDULE = dict(param_scheduler=dict(type="LinearLR", start_factor=0.5, end=6, by_epoch=False))


def killed(work_dir, **options) -> None:
    """Train in a forked process, which is killed in the fifth iteration."""
    if not (process := os.fork()):
        try:
            train(runner(work_dir, model=dict(signal_at=5, number=signal.SIGKILL), **options))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def test_a_killed_training_continues_from_its_last_checkpoint(tmp_path):
    killed(tmp_path, **SCHEDULE)
    cfg = Config(dict(work_dir=str(tmp_path)))
    set_resume(cfg, None)
    assert (cfg.resume, cfg.load_from) == (True, str(tmp_path / "iter_4.pth"))
    rest = runner(tmp_path, resume=True, load_from=cfg.load_from, **SCHEDULE)
    rates = {}
    step = rest.train_loop.run_iter
    rest.train_loop.run_iter = lambda batch: (
        rates.update({rest.iter: rest.optim_wrapper.get_lr()["lr"][0]}),
        step(batch),
    )
    train(rest)
    assert sorted(losses(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert rates == pytest.approx({4: 0.1 * 0.9, 5: 0.1})  # the rates are 0.05, 0.06, 0.07, 0.08, 0.09, 0.1
    assert load_checkpoint(tmp_path / "iter_6.pth")["optimizer"]["state"][0]["step"] == 6


def test_nothing_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match="--resume"):
        set_resume(Config(dict(work_dir=str(tmp_path))), None)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_larger_and_smaller_batches_train_every_later_epoch(tmp_path, batch_size):
    train(runner(tmp_path, epochs=1, hook=dict(by_epoch=True, interval=1)))
    rest = runner(tmp_path, epochs=3, resume=True, loader=dict(batch_size=batch_size))
    train(rest)
    assert rest.epoch == 3
    assert rest.iter == 4 + 2 * len(rest.train_dataloader)
