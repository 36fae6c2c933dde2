"""Exponential moving averages of the weights."""

from math import comb
from typing import Any

from mmengine.hooks import EMAHook
from mmengine.model import BaseAveragedModel
from mmengine.runner import Runner
from torch import Tensor, nn

from mmlisa.registry import HOOKS, MODELS


@MODELS.register_module()
class ThresholdEMA(BaseAveragedModel):
    """PaddleDetection's average with the "threshold" decay ``d_t = min(decay, (1 + t) / (10 + t))``, t from 0.

    PaddleDetection starts the average at zero and divides it by its bias, the sum ``1 - d_0 ⋯ d_t`` of the weights so far. This
    class computes the same value in one step by a moving average with momentum ``(1 - d_t) / (1 - d_0 ⋯ d_t)``, at
    first 1. The other options are those of MMEngine's averaged models.
    """

    def __init__(self, model: nn.Module, decay: float = 0.9998, **options) -> None:
        super().__init__(model, **options)
        self.decay = decay

    def momentum(self, step: int) -> float:
        """Return the weight of the newest parameters after ``step`` earlier ones."""
        # Until the decay reaches its limit, the product is 1·2⋯(t+1) / (10·11⋯(t+10)) = 1 / C(t+10, 9); then it is almost zero.
        return (1 - min(self.decay, (1 + step) / (10 + step))) / (1 - 1 / comb(step + 10, 9))

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        averaged_param.lerp_(source_param, self.momentum(int(steps) // self.interval))


@HOOKS.register_module()
class CycleEMAHook(EMAHook):
    """MMEngine's EMA, restarted every ``cycle`` epochs as in PicoDet's recipe, by default with its :class:`ThresholdEMA`."""

    def __init__(self, cycle: int, ema_type: str = "mmlisa.ThresholdEMA", **options) -> None:
        super().__init__(ema_type=ema_type, **options)
        self.cycle = cycle

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        super().before_train_iter(runner, batch_idx, data_batch)
        # A training that is resumed in the middle of an epoch does not begin with batch 0.
        if batch_idx == 0 and runner.epoch and runner.epoch % self.cycle == 0:
            # At step 0 the average is the current weights.
            self.ema_model.steps.zero_()


@HOOKS.register_module()
class SelfDistillationHook(EMAHook):
    """MMEngine's EMA, whose average becomes the teacher of a :class:`mmlisa.models.heads.SelfDistilledClassifier` (MESA).

    This begins in the epoch ``distill_from``, counted from 0.
    """

    def __init__(self, distill_from: int, **options) -> None:
        super().__init__(**options)
        self.distill_from = distill_from

    def before_train_epoch(self, runner: Runner) -> None:
        super().before_train_epoch(runner)
        if runner.epoch >= self.distill_from:
            self.src_model.set_teacher(self.ema_model.module)
