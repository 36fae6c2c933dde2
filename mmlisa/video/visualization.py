"""Pictures of clips: their frames side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmpretrain.engine.hooks import VisualizationHook
from torch import Tensor

from mmlisa.registry import HOOKS


def contact_sheet(clips: Tensor) -> np.ndarray:
    """``[V, 3, T, H, W]`` (BGR, uint8), as :class:`PackClips` makes them -> a row of frames per clip, ``[V H, T W, 3]``, RGB."""
    views, channels, length, height, width = clips.shape
    rows = clips.flip(1).permute(0, 3, 2, 4, 1)  # [V, H, T, W, 3]
    return rows.reshape(views * height, length * width, channels).cpu().numpy()


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
