"""Exponential moving averages of the weights."""

from mmengine.hooks import EMAHook
from mmengine.runner import Runner

from mmlisa.registry import HOOKS


@HOOKS.register_module()
class CycleEMAHook(EMAHook):
    """MMEngine's EMA, started again from the current weights every ``cycle`` epochs, as PicoDet's recipe does.

    Args:
        cycle: epochs between two starts.
        **options: see :class:`mmengine.hooks.EMAHook`.
    """

    def __init__(self, cycle: int, **options) -> None:
        super().__init__(**options)
        self.cycle = cycle

    def before_train_epoch(self, runner: Runner) -> None:
        super().before_train_epoch(runner)
        if runner.epoch and runner.epoch % self.cycle == 0:
            # At step 0 the average is the current weights.
            self.ema_model.steps.zero_()
