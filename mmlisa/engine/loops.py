"""Training by epochs that can be interrupted in the middle of one."""

from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop

from mmlisa.registry import LOOPS


@LOOPS.register_module()
class EpochBasedTrainLoop(_EpochBasedTrainLoop):
    """MMEngine's loop, which resumes in the middle of an epoch where the checkpoint is of one.

    The batches of the epoch that were trained on before are loaded and passed over.
    """

    def run_epoch(self) -> None:
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        done = self._iter - self._epoch * len(self.dataloader)
        for index, batch in enumerate(self.dataloader):
            if index >= done:
                self.run_iter(index, batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1
