"""Feature pyramid on the last map of a plain backbone (Li et al., "Exploring Plain Vision Transformer Backbones for Object
Detection", Sec. 3 and appendix A.2)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from mmengine.model import BaseModule
from timm.layers import LayerNorm2d
from torch import Tensor, nn

from mmlisa.registry import MODELS


@MODELS.register_module()
class SimpleFeaturePyramid(BaseModule):
    """Maps of four times, twice, once and half the size of the backbone's last map, and one of a quarter by subsampling.

    ``forward(maps)`` takes a backbone's maps and uses the last, ``[B, in_channels, H, W]``; it returns five maps
    ``[B, out_channels, ...]`` of 4H x 4W, 2H x 2W, H x W, H//2 x W//2 and (H//2 + 1)//2 x (W//2 + 1)//2. Transposed
    convolutions halve the channels as they double the size; each map then goes through a 1x1 and a 3x3 convolution, each
    followed by a LayerNorm.

    Args:
        in_channels: channels of the backbone's last map, a multiple of 4.
        out_channels: channels of every returned map.
    """

    def __init__(
        self, in_channels: int, out_channels: int = 256, init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(init_cfg)
        half, quarter, double = in_channels // 2, in_channels // 4, partial(nn.ConvTranspose2d, kernel_size=2, stride=2)
        rescalings = [
            ([double(in_channels, half), LayerNorm2d(half), nn.GELU(), double(half, quarter)], quarter),
            ([double(in_channels, half)], half),
            ([], in_channels),
            ([nn.MaxPool2d(2, stride=2)], in_channels),
        ]
        self.levels = nn.ModuleList(
            nn.Sequential(
                *rescaling,
                nn.Conv2d(channels, out_channels, 1, bias=False),
                LayerNorm2d(out_channels),
                nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
                LayerNorm2d(out_channels),
            )
            for rescaling, channels in rescalings
        )

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        pyramid = [level(maps[-1]) for level in self.levels]
        return (*pyramid, F.max_pool2d(pyramid[-1], 1, stride=2))
