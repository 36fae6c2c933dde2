"""What test_interrupts.py and the kill in tests/tools/test_train_kill_resume_test.py leave open."""

import pytest
from mmengine.config import Config

from helpers.toy_runner import runner
from mmlisa.training.runner import set_resume, train


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
