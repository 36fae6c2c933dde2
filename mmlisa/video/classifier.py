"""mmpretrain's image classifier on views of videos, ``[B, V, 3, T, H, W]``."""

from copy import deepcopy
from typing import Any

import torch
from mmpretrain.models import ClsDataPreprocessor, ImageClassifier
from mmpretrain.models.utils.batch_augments import RandomBatchAugment
from mmpretrain.structures import DataSample
from torch import Tensor

from mmlisa.models.init_cfg import SafeInit
from mmlisa.registry import MODELS


class _ClipAugment(RandomBatchAugment):
    """Mixup and CutMix with the same mix for all frames of a video: the frames are passed as channels of one image."""

    def __call__(self, clips: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        mixed, scores = super().__call__(clips.flatten(1, -3), scores)
        return mixed.view_as(clips), scores


@MODELS.register_module()
class VideoDataPreprocessor(ClsDataPreprocessor):
    """mmpretrain's ``ClsDataPreprocessor``, with its arguments, for ``[B, V, 3, T, H, W]`` or a list of B views."""

    def __init__(self, *args: Any, batch_augments: dict[str, Any] | None = None, **kwargs: Any) -> None:
        # The parent appends to the lists that it is given.
        super().__init__(*args, batch_augments=deepcopy(batch_augments), **kwargs)
        if self._enable_normalize:
            self.mean, self.std = self.mean.unsqueeze(1), self.std.unsqueeze(1)  # [3, 1, 1, 1]
        if batch_augments:
            self.batch_augments = _ClipAugment(**deepcopy(batch_augments))

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """Convert colours, normalise and, in training, mix; ``inputs`` keep their shape."""
        views = data["inputs"] if isinstance(data["inputs"], Tensor) else torch.stack(data["inputs"])
        num_views = views.shape[1]
        # The parent expects the colours in the second axis: [B, 3, V T, H, W].
        data = super().forward({**data, "inputs": views.transpose(1, 2).flatten(2, 3)}, training)
        return {**data, "inputs": data["inputs"].unflatten(2, (num_views, -1)).transpose(1, 2)}


@MODELS.register_module()
class VideoClassifier(SafeInit, ImageClassifier):
    """mmpretrain's ``ImageClassifier`` for a video backbone, on ``[B, V, 3, T, H, W]`` or, for single views, ``[B, 3, T, H, W]``.

    The loss treats every view as a sample. A prediction is the mean of the probabilities of the V views. Features and
    ``mode='tensor'`` have one row per view.
    """

    def __init__(self, *args: Any, data_preprocessor: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if data_preprocessor is None or isinstance(data_preprocessor, dict):
            data_preprocessor = {"type": "mmlisa.VideoDataPreprocessor", **(data_preprocessor or {})}
        super().__init__(*args, data_preprocessor=data_preprocessor, **kwargs)

    def extract_feat(self, inputs: Tensor, stage: str = "neck") -> Any:
        return super().extract_feat(inputs.flatten(0, 1) if inputs.ndim == 6 else inputs, stage)

    def loss(self, inputs: Tensor, data_samples: list[DataSample]) -> dict[str, Tensor]:
        views = inputs.shape[1] if inputs.ndim == 6 else 1
        return super().loss(inputs, [sample for sample in data_samples for _ in range(views)])

    def predict(self, inputs: Tensor, data_samples: list[DataSample] | None = None, **kwargs: Any) -> list[DataSample]:
        views = self.head.predict(self.extract_feat(inputs), **kwargs)
        scores = torch.stack([view.pred_score for view in views]).unflatten(0, (len(inputs), -1)).mean(1)
        samples = data_samples or [DataSample() for _ in inputs]
        for sample, score in zip(samples, scores, strict=True):
            sample.set_pred_score(score).set_pred_label(score.argmax(0, keepdim=True))
        return samples
