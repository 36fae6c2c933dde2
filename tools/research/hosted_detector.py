"""Training of a detector whose attention was replaced: its host's weights, distillation, and a budget of CPU seconds."""

from collections.abc import Sequence
from math import cos, pi
from time import process_time
from typing import Any

import torch
from mmdet.models import MaskRCNN
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from mmlisa.checkpoints import load_state_dict, read_checkpoint
from mmlisa.registry import HOOKS, MODELS


@MODELS.register_module()
class HostedMaskRCNN(MaskRCNN):
    """Mask R-CNN that starts from the weights of a trained host.

    Args:
        host: checkpoint of the host. Weights of the same name and shape are carried over.
        teacher: config of the host's backbone, whose maps this backbone learns, too; None for no distillation.
        weight: factor of the distillation loss.
        **options: ``MaskRCNN``'s.
    """

    def __init__(
        self, *, host: str, teacher: dict[str, Any] | None = None, weight: float = 1.0, **options: Any
    ) -> None:
        super().__init__(**options)
        self.host, self.teacher, self.weight = host, teacher, weight
        # A list hides the teacher from the student: it is neither saved nor trained with it.
        self._teacher: list[nn.Module] = []

    def init_weights(self) -> None:
        super().init_weights()
        state = host_weights(self.host)
        load_state_dict(self, state, self.host, min_matched=0.5)
        if self.teacher:
            teacher = MODELS.build(self.teacher)
            own = {name.removeprefix("backbone."): value for name, value in state.items()}
            load_state_dict(teacher, own, self.host, min_matched=1)
            self._teacher = [teacher.eval().requires_grad_(False)]

    def loss(self, batch_inputs: Tensor, batch_data_samples: list) -> dict[str, Tensor]:
        """Mask R-CNN's losses and, with a teacher, ``loss_distill``."""
        maps: list[Tensor] = []
        with self.backbone.register_forward_hook(lambda module, args, output: maps.extend(output)):
            losses = super().loss(batch_inputs, batch_data_samples)
        if self._teacher:
            with torch.no_grad():
                targets = self._teacher[0](batch_inputs)
            losses["loss_distill"] = self.weight * relative_error(maps, targets)
        return losses


def host_weights(checkpoint: str) -> dict[str, Tensor]:
    """Return the host's weights; the first two thirds of its projections, query and key, also under MILA's name."""
    state = read_checkpoint(checkpoint)["state_dict"]
    joint = {name: value for name, value in state.items() if ".qkv." in name}
    return state | {name.replace(".qkv.", ".qk."): value[: len(value) // 3 * 2] for name, value in joint.items()}


def relative_error(maps: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Return the squared error of each map ``[B, C, H, W]``, divided by the variance of its target, averaged over the maps."""
    errors = [(ours - theirs).square().mean() / theirs.var() for ours, theirs in zip(maps, targets, strict=True)]
    return torch.stack(errors).mean()


@HOOKS.register_module()
class CpuBudgetHook(Hook):
    """Ends a training after a number of CPU seconds of its process; the learning rate follows the share that is spent.

    The rate grows linearly over the first tenth of the budget, then falls to zero as a cosine.
    """

    warmup = 0.1

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before_train(self, runner: Runner) -> None:
        runner.train_loop.stop_training = not self.seconds
        self.rates = [group["lr"] for group in runner.optim_wrapper.param_groups]
        self.start = process_time()

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        share = (process_time() - self.start) / self.seconds
        factor = min(share / self.warmup, (1 + cos(pi * min(share, 1))) / 2)
        for group, rate in zip(runner.optim_wrapper.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict[str, Any] | None = None
    ) -> None:
        runner.train_loop.stop_training = process_time() - self.start >= self.seconds
