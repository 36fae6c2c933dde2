"""Self-distillation from averaged weights for mmpretrain's classifiers (Du et al., "Sharpness-Aware Training for Free", MESA)."""

from typing import Any

import torch
import torch.nn.functional as F
from mmpretrain.models.classifiers import ImageClassifier
from torch import Tensor, nn

from mmlisa.models.init_cfg import loading_from_init_cfg
from mmlisa.registry import MODELS


@MODELS.register_module()
class SelfDistilledClassifier(ImageClassifier):
    """mmpretrain's ``ImageClassifier`` that also learns the scores of its own averaged weights.

    The loss is ``loss to the labels + weight * cross entropy to softmax(averaged network's scores)`` for the same, mixed images,
    from when :class:`mmlisa.training.ema.SelfDistillationHook` sets the teacher; before that the first term alone.

    Args:
        weight: λ of MESA.
        **options: ``ImageClassifier``'s.
    """

    def __init__(self, *, weight: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.weight = weight
        # A list hides the teacher from the student: it is neither saved nor trained nor averaged with it.
        self._teacher: list[nn.Module] = []

    def init_weights(self) -> None:
        with loading_from_init_cfg(self):
            super().init_weights()

    def set_teacher(self, teacher: nn.Module) -> None:
        """Set the averaged network, called as ``teacher(images, mode='tensor')`` in evaluation mode."""
        self._teacher = [teacher.eval()]

    def loss(self, inputs: Tensor, data_samples: list) -> dict[str, Tensor]:
        """The losses of the head, and ``loss_mesa`` where there is a teacher."""
        features = self.extract_feat(inputs)
        losses = self.head.loss(features, data_samples)
        if self._teacher:
            with torch.no_grad():
                target = self._teacher[0](inputs, mode="tensor").softmax(dim=1)
            losses["loss_mesa"] = self.weight * F.cross_entropy(self.head(features), target)
        return losses
