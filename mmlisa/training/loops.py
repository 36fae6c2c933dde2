"""Epoch-based training that can resume in the middle of an epoch, and the validations of MMEngine's loops."""

from bisect import bisect

from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop
from mmengine.runner import IterBasedTrainLoop, Runner

from mmlisa.registry import LOOPS

# Entries of the message hub, which checkpoints contain.
_EPOCH_START = "mmlisa_epoch_start"  # iterations before the epoch
VALIDATION_DUE = "mmlisa_validation_due"  # the resumed loop would continue without it


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


def validation_follows(runner: Runner, *, ends_epoch: bool) -> bool:
    """Whether the loop validates behind the hooks of the present iteration, or of the end of the present epoch.

    MMEngine's loops count an iteration or an epoch after its hooks.
    """
    loop = runner.train_loop
    if runner.val_loop is None or not isinstance(loop, _EpochBasedTrainLoop if ends_epoch else IterBasedTrainLoop):
        return False
    count, last = (loop.epoch + 1, loop.max_epochs) if ends_epoch else (loop.iter + 1, loop.max_iters)
    interval = loop.dynamic_intervals[bisect(loop.dynamic_milestones, count + 1) - 1]
    return count >= loop.val_begin and (count % interval == 0 or count == last)
