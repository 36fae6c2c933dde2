"""Epoch-based training that can resume in the middle of an epoch."""

from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop

from mmlisa.registry import LOOPS


@LOOPS.register_module()
class EpochBasedTrainLoop(_EpochBasedTrainLoop):
    """MMEngine's loop, which also resumes from a checkpoint saved in the middle of an epoch.

    The resumed epoch has the batches that were left. They are drawn anew, because loading and skipping the earlier ones would
    take as long as they took to load.
    """

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        length = len(self.dataloader)
        done = self._iter - self._epoch * length
        done = done if 0 <= done < length else 0  # the number of batches per epoch may have changed since
        for index, batch in zip(range(done, length), self.dataloader, strict=False):
            self.run_iter(index, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1
