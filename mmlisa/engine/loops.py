"""Epoch-based training that can resume in the middle of an epoch."""

from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop

from mmlisa.registry import LOOPS

_EPOCH_START = "mmlisa_epoch_start"  # iterations before the epoch, in the message hub


@LOOPS.register_module()
class EpochBasedTrainLoop(_EpochBasedTrainLoop):
    """MMEngine's loop, which also resumes from a checkpoint saved in the middle of an epoch.

    It loads and skips the batches that the epoch has already trained on. The number of batches per epoch may have changed since.
    """

    @property
    def max_iters(self) -> int:
        """Iterations that were trained, and those that are left with the present number of batches."""
        return self._iter - self._done() + (self._max_epochs - self._epoch) * len(self.dataloader)

    def _done(self) -> int:
        """Batches of the present epoch that were trained on."""
        length = len(self.dataloader)
        start = self.runner.message_hub.runtime_info.get(_EPOCH_START) if self._iter else 0
        if start is not None:
            return min(max(self._iter - start, 0), length)
        # MMEngine's checkpoints have no such entry. With another number of batches, it is taken for one of a whole epoch.
        done = self._iter - self._epoch * length
        return done if 0 <= done < length else 0

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        batches, hub = iter(self.dataloader), self.runner.message_hub
        done = self._done()
        hub.update_info(_EPOCH_START, self._iter - done)
        for _ in range(done):
            next(batches)
        for index, batch in enumerate(batches, start=done):
            self.run_iter(index, batch)
        hub.update_info(_EPOCH_START, self._iter)  # before the checkpoint of the whole epoch is saved
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1
