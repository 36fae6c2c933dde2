"""Pictures of clips: their frames side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmpretrain.engine.hooks import VisualizationHook
from torch import Tensor

from mmlisa.registry import HOOKS


def contact_sheet(clips: Tensor, min_height: int = 128) -> np.ndarray:
    """A row of frames per clip: ``[V, 3, T, H, W]`` (BGR, uint8), as :class:`PackClips` makes them -> ``[V H, T W, 3]``, RGB.

    Frames lower than ``min_height`` are enlarged by a whole number, so that what is written on them can be read.
    """
    factor = -(-min_height // clips.shape[3])
    clips = clips.flip(1).repeat_interleave(factor, 3).repeat_interleave(factor, 4)
    views, channels, length, height, width = clips.shape
    return clips.permute(0, 3, 2, 4, 1).reshape(views * height, length * width, channels).cpu().numpy()


@HOOKS.register_module()
class VideoVisualizationHook(VisualizationHook):
    """mmpretrain's ``VisualizationHook``, its arguments included, that draws the prediction on a contact sheet of the clips."""

    def _draw_samples(
        self, batch_idx: int, data_batch: dict[str, Any], data_samples: Sequence[Any], step: int = 0
    ) -> None:
        if not self.enable:
            return
        sheets = [Tensor(contact_sheet(clips).copy()).permute(2, 0, 1) for clips in data_batch["inputs"]]
        super()._draw_samples(batch_idx, {**data_batch, "inputs": sheets}, data_samples, step)
