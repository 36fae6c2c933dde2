"""Pictures of clips: their frames side by side."""

from typing import Any

import numpy as np
from torch import Tensor

from mmlisa.engine import OverlayHook
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
class VideoOverlayHook(OverlayHook):
    """:class:`mmlisa.engine.OverlayHook`, its arguments included, on contact sheets of the clips that the network sees."""

    def picture(self, inputs: Tensor, sample: Any) -> np.ndarray:
        return contact_sheet(inputs)
