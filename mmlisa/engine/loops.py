"""Epoch-based training that can resume in the middle of an epoch."""

from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop

from mmlisa.registry import LOOPS

_EPOCH_START = "mmlisa_epoch_start"  # iterations before the epoch, in the message hub


@LOOPS.register_module()
class EpochBasedTrainLoop(_EpochBasedTrainLoop):
    """MMEngine's loop, which also resumes from a checkpoint saved in the middle of an epoch.

    It loads and skips the batches that the epoch has already trained on. The number of batches per epoch may have changed since.
    """

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        batches, hub = iter(self.dataloader), self.runner.message_hub
        # The hub is saved in checkpoints. MMEngine's do not have the entry.
        start = hub.get_info(_EPOCH_START, self._epoch * len(self.dataloader)) if self._iter else 0
        done = min(max(self._iter - start, 0), len(self.dataloader))
        hub.update_info(_EPOCH_START, self._iter - done)
        for _ in range(done):
            next(batches)
        for index, batch in enumerate(batches, start=done):
            self.run_iter(index, batch)
        hub.update_info(_EPOCH_START, self._iter)  # before the checkpoint of the whole epoch is saved
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1
