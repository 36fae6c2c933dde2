"""Contact sheets: the frames of clips side by side."""

from typing import Any

import cv2
import numpy as np
from torch import Tensor

from mmlisa.registry import HOOKS
from mmlisa.visualization import OverlayHook

GAP = 2  # pixels between frames


def contact_sheet(clips: Tensor, min_height: int = 128) -> np.ndarray:
    """Return the frames of each clip in a row, with gaps of :data:`GAP` white pixels between frames and rows.

    Frames lower than ``min_height`` are enlarged by an integer factor, so that labels on them are readable.

    Args:
        clips: ``[V, 3, T, H, W]`` (BGR, uint8), as :class:`PackClips` makes them.

    Returns:
        ``[V (H + GAP) - GAP, T (W + GAP) - GAP, 3]``, RGB, with H and W of an enlarged frame.
    """
    frames = clips.flip(1).permute(0, 2, 3, 4, 1).cpu().numpy()
    views, length, height, width, _ = frames.shape
    factor = max(1, -(-min_height // height))
    height, width = factor * height, factor * width
    sheet = np.full((views * (height + GAP) - GAP, length * (width + GAP) - GAP, 3), 255, np.uint8)
    for view, time in np.ndindex(views, length):
        y, x = view * (height + GAP), time * (width + GAP)
        enlarged = cv2.resize(frames[view, time], (width, height), interpolation=cv2.INTER_CUBIC)
        sheet[y : y + height, x : x + width] = enlarged
    return sheet


@HOOKS.register_module()
class VideoOverlayHook(OverlayHook):
    """:class:`mmlisa.visualization.OverlayHook`, with its arguments, on contact sheets of the clips that the network sees."""

    def picture(self, inputs: Tensor, sample: Any) -> np.ndarray:
        return contact_sheet(inputs)
