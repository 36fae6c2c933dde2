"""Clips drawn as contact sheets."""

from typing import Any

import numpy as np
from torch import Tensor

from mmlisa.registry import HOOKS
from mmlisa.visualization import OverlayHook
from mmlisa.visualization.samples import contact_sheet


@HOOKS.register_module()
class VideoOverlayHook(OverlayHook):
    """:class:`mmlisa.visualization.OverlayHook`, with its arguments, on contact sheets of the clips that the network sees."""

    def picture(self, inputs: Tensor, sample: Any) -> np.ndarray:
        return contact_sheet(inputs)
