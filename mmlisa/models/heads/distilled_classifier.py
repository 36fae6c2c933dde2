"""Hard distillation for mmpretrain's classifiers (Touvron et al., "DeiT")."""

from typing import Any

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmpretrain.models.classifiers import ImageClassifier
from torch import Tensor, nn

from mmlisa.checkpoints import load_weights
from mmlisa.models.init_cfg import loading_from_init_cfg
from mmlisa.registry import MODELS


@MODELS.register_module()
class DistilledClassifier(ImageClassifier):
    """mmpretrain's ``ImageClassifier`` that also learns the classes a frozen teacher predicts for the same images.

    The loss is ``(1 - weight) * loss to the labels + weight * cross entropy to the teacher's classes``. The teacher is not
    part of the checkpoints. With a head of its own for the teacher's classes, the scores of a test are the mean of both heads'.

    Args:
        teacher: the config of the teacher's model, or a config file that has it as ``model``.
        teacher_checkpoint: its weights, read when training starts; None for a teacher that brings them along, such as
            ``dict(type='TimmClassifier', model_name=…, pretrained=True)``.
        weight: share of the distillation loss, from 0 to 1.
        distill_head: config of the second head, as DeiT and LeViT have it; None: one head learns from the labels and the teacher.
        **options: ``ImageClassifier``'s.
    """

    def __init__(
        self,
        *,
        teacher: str | dict[str, Any],
        teacher_checkpoint: str | None = None,
        weight: float = 0.5,
        distill_head: dict[str, Any] | None = None,
        **options,
    ) -> None:
        super().__init__(**options)
        self.distill_head = MODELS.build(distill_head) if distill_head else None
        self.weight, self.teacher, self.teacher_checkpoint = weight, teacher, teacher_checkpoint
        # A list hides the teacher from the student: it is neither saved nor trained nor averaged with it.
        self._teacher: list[nn.Module] = []

    def init_weights(self) -> None:
        """Initialise the student and build the teacher; MMEngine calls this when training starts."""
        with loading_from_init_cfg(self):
            super().init_weights()
        model = MODELS.build(Config.fromfile(self.teacher).model if isinstance(self.teacher, str) else self.teacher)
        if self.teacher_checkpoint is not None:
            hint = "teacher and teacher_checkpoint must belong together"
            load_weights(model, self.teacher_checkpoint, min_matched=1, hint=hint)
        self._teacher = [model.eval().requires_grad_(False)]

    def loss(self, inputs: Tensor, data_samples: list) -> dict[str, Tensor]:
        """The student's losses, and ``loss_distill``."""
        features = self.extract_feat(inputs)
        losses = {  # with cal_acc, the head adds accuracies, which are no losses
            name: (1 - self.weight) * value if "loss" in name else value
            for name, value in self.head.loss(features, data_samples).items()
        }
        with torch.no_grad():
            target = self._teacher[0].to(inputs.device)(inputs, mode="tensor").argmax(dim=1)
        scores = (self.distill_head or self.head)(features)
        return {**losses, "loss_distill": self.weight * F.cross_entropy(scores, target)}

    def scores(self, features: tuple[Tensor, ...]) -> Tensor:
        """Features -> class scores ``[B, classes]`` of a test."""
        scores = self.head(features)
        return scores if self.distill_head is None else (scores + self.distill_head(features)) / 2

    def predict(self, inputs: Tensor, data_samples: list | None = None) -> list:
        """mmpretrain's data samples with the scores and labels of a test."""
        return self.head._get_predictions(self.scores(self.extract_feat(inputs)), data_samples)

    def forward(self, inputs: Tensor, data_samples: list | None = None, mode: str = "tensor") -> Any:
        """See mmpretrain's ``ImageClassifier``."""
        if mode == "tensor":
            return self.scores(self.extract_feat(inputs))
        return super().forward(inputs, data_samples, mode=mode)
