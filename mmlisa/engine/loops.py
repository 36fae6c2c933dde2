"""Epoch-based training that can resume in the middle of an epoch."""

from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop

from mmlisa.registry import LOOPS


@LOOPS.register_module()
class EpochBasedTrainLoop(_EpochBasedTrainLoop):
    """MMEngine's loop, which also resumes from a checkpoint saved in the middle of an epoch.

    It loads and skips the batches that the epoch has already trained on.
    """

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        batches = iter(self.dataloader)
        done = min(max(self._iter - self._epoch * len(self.dataloader), 0), len(self.dataloader))
        for _ in range(done):
            next(batches)
        for index, batch in enumerate(batches, start=done):
            self.run_iter(index, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1
