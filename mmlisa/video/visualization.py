"""Contact sheets: the frames of clips side by side."""

from typing import Any

import numpy as np
from torch import Tensor
from torchvision.utils import make_grid

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
    frames = clips.flip(1).transpose(1, 2).flatten(0, 1)  # [V T, 3, H, W]
    factor = max(1, -(-min_height // frames.shape[2]))
    frames = frames.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    sheet = make_grid(frames, clips.shape[2], GAP, pad_value=255)[:, GAP:-GAP, GAP:-GAP]
    return sheet.permute(1, 2, 0).cpu().numpy()


@HOOKS.register_module()
class VideoOverlayHook(OverlayHook):
    """:class:`mmlisa.visualization.OverlayHook`, with its arguments, on contact sheets of the clips that the network sees."""

    def picture(self, inputs: Tensor, sample: Any) -> np.ndarray:
        return contact_sheet(inputs)
