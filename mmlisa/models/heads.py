"""Classification: classifiers of mmpretrain that also learn from a teacher, and a head with a hidden layer."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmpretrain.models.classifiers import ImageClassifier
from mmpretrain.models.heads import ClsHead
from torch import Tensor, nn

from mmlisa.checkpoints import load_weights
from mmlisa.errors import UserError
from mmlisa.models.init_cfg import SafeInit
from mmlisa.models.layers.blocks import hidden_layers
from mmlisa.registry import MODELS


def _normalization(classifier: nn.Module) -> tuple[list[float], ...] | None:
    """Return mean and std of a classifier's input, in units of 0 to 255; None if it does not tell them."""
    preprocessor, pretrained = classifier.data_preprocessor, getattr(classifier, "model", None)
    pretrained = getattr(pretrained, "pretrained_cfg", None)  # mmpretrain's TimmClassifier holds timm's network
    if getattr(preprocessor, "mean", None) is not None:
        values = preprocessor.mean, preprocessor.std
    elif pretrained is not None:
        values = (255 * np.array(pretrained[key]) for key in ("mean", "std"))
    else:
        return None
    return tuple(np.round(np.ravel(value), 2).tolist() for value in values)


class TaughtClassifier(SafeInit, ImageClassifier):
    """Base: ``ImageClassifier`` with a teacher that is neither saved nor trained nor averaged with it."""

    def __init__(self, *, weight: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.weight = weight
        self._teacher: list[nn.Module] = []  # a list hides the teacher from PyTorch

    def teach(self, inputs: Tensor) -> Tensor:
        """Return the teacher's scores ``[B, classes]``."""
        with torch.no_grad():
            return self._teacher[0].to(inputs.device)(inputs, mode="tensor")


@MODELS.register_module()
class DistilledClassifier(TaughtClassifier):
    """Hard distillation (Touvron et al., "DeiT"): learns the classes that a frozen teacher predicts for the same images.

    The loss is ``(1 - weight) * loss to the labels + weight * cross entropy to the teacher's classes``. With a second head for
    the teacher's classes, the scores of a test are the mean of both heads' scores.

    Args:
        teacher: the config of the teacher's model, or a config file that has it as ``model``. When training starts, a teacher of
            images of another mean and standard deviation is a UserError.
        teacher_checkpoint: its weights, read when training starts; None for a teacher that brings them along, such as
            ``dict(type='TimmClassifier', model_name=…, pretrained=True)``.
        weight: share of the distillation loss, from 0 to 1.
        distill_head: config of the second head, as DeiT and LeViT have it; None: one head learns from the labels and the teacher.
    """

    def __init__(
        self,
        *,
        teacher: str | dict[str, Any],
        teacher_checkpoint: str | None = None,
        weight: float = 0.5,
        distill_head: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(weight=weight, **options)
        self.distill_head = MODELS.build(distill_head) if distill_head else None
        self.teacher, self.teacher_checkpoint = teacher, teacher_checkpoint

    def init_more(self) -> None:
        """Build the teacher when the training starts."""
        cfg = Config.fromfile(self.teacher) if isinstance(self.teacher, str) else {"model": self.teacher}
        preprocessor = cfg.get("data_preprocessor")
        model = MODELS.build(cfg["model"], default_args=preprocessor and {"data_preprocessor": preprocessor})
        ours, theirs = _normalization(self), _normalization(model)
        if theirs is not None and (ours is None or not np.allclose(ours, theirs, atol=0.02)):
            raise UserError(
                f"teacher: it takes images normalized by (mean, std) {theirs}, and the student gives it {ours}; set mean and std "
                "of data_preprocessor to the teacher's"
            )
        if self.teacher_checkpoint is not None:
            load_weights(model, self.teacher_checkpoint)
        self._teacher = [model.eval().requires_grad_(False)]

    def loss(self, inputs: Tensor, data_samples: list) -> dict[str, Tensor]:
        """Return the student's losses, and ``loss_distill``."""
        features = self.extract_feat(inputs)
        losses = {  # with cal_acc, the head adds accuracies, which are no losses
            name: (1 - self.weight) * value if "loss" in name else value
            for name, value in self.head.loss(features, data_samples).items()
        }
        scores = (self.distill_head or self.head)(features)
        return {**losses, "loss_distill": self.weight * F.cross_entropy(scores, self.teach(inputs).argmax(dim=1))}

    def scores(self, features: tuple[Tensor, ...]) -> Tensor:
        """Return the class scores of a test ``[B, classes]``."""
        scores = self.head(features)
        return scores if self.distill_head is None else (scores + self.distill_head(features)) / 2

    def predict(self, inputs: Tensor, data_samples: list | None = None) -> list:
        """Return mmpretrain's data samples with the scores and labels of a test."""
        return self.head._get_predictions(self.scores(self.extract_feat(inputs)), data_samples)

    def forward(self, inputs: Tensor, data_samples: list | None = None, mode: str = "tensor") -> Any:
        if mode == "tensor":
            return self.scores(self.extract_feat(inputs))
        return super().forward(inputs, data_samples, mode=mode)


@MODELS.register_module()
class SelfDistilledClassifier(TaughtClassifier):
    """MESA (Du et al., "Sharpness-Aware Training for Free"): learns the scores of the classifier's own averaged weights.

    The loss is ``loss to the labels + weight * cross entropy to softmax(averaged network's scores)`` for the same, mixed images,
    from when :class:`mmlisa.training.recipes.SelfDistillationHook` sets the teacher; before that the first term alone. The
    weight is λ of MESA.
    """

    def set_teacher(self, teacher: nn.Module) -> None:
        """Set the averaged network, called as ``teacher(images, mode='tensor')`` in evaluation mode."""
        self._teacher = [teacher.eval()]

    def loss(self, inputs: Tensor, data_samples: list) -> dict[str, Tensor]:
        """Return the losses of the head, and ``loss_mesa`` if there is a teacher."""
        features = self.extract_feat(inputs)
        losses = self.head.loss(features, data_samples)
        if self._teacher:
            target = self.teach(inputs).softmax(dim=1)
            losses["loss_mesa"] = self.weight * F.cross_entropy(self.head(features), target)
        return losses


@MODELS.register_module()
class MlpClsHead(SafeInit, ClsHead):
    """(LayerNorm,) Linear C -> 4 C, activation, LayerNorm, (dropout,) Linear.

    The defaults are those of LiSANet, whose networks end with a norm and have no ``pre_norm``: only this reading of the paper
    makes the parameter counts of classifiers and detectors agree. MetaFormer's head, which iViT has, is ``dict(pre_norm=True,
    activation='SquaredReLU', dropout=0.4)`` behind a backbone without a last norm.

    Args:
        activation: ``'GELU'``, ``'ReLU'`` or ``'SquaredReLU'``.
        pre_norm: LayerNorm on the pooled features.
        dropout: rate before the last layer.
        init_scale: factor on the initial weight and bias of the last layer; ConvNeXt fine-tunes with 0.001.
        kwargs: options of mmpretrain's ``ClsHead``: ``loss``, ``topk``, ``cal_acc``, ``init_cfg``.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        *,
        activation: str = "GELU",
        pre_norm: bool = False,
        dropout: float = 0.0,
        init_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("init_cfg", dict(type="TruncNormal", layer="Linear", std=0.02))
        super().__init__(**kwargs)
        for name, layer in hidden_layers(in_channels, activation, pre_norm, dropout).items():
            self.add_module(name, layer)
        self.fc2 = nn.Linear(self.fc1.out_features, num_classes)
        self.init_scale = init_scale

    def init_more(self) -> None:
        with torch.no_grad():
            for parameter in self.fc2.parameters():
                parameter.mul_(self.init_scale)

    def pre_logits(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Return the last layer's input ``[B, 4 C]`` for the last of the pooled maps, ``[B, C]``."""
        return self.dropout(self.norm(self.activation(self.fc1(self.pre_norm(feats[-1])))))

    def forward(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Return class scores ``[B, num_classes]`` for the last of the pooled maps ``[B, C_i]``."""
        return self.fc2(self.pre_logits(feats))
