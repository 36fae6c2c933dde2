"""Necks that no OpenMMLab package has: PicoDet's, and the pyramid on a plain backbone."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule, DepthwiseSeparableConvModule
from mmengine.model import BaseModule
from timm.layers import LayerNorm2d
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.init_cfg import SafeInit
from mmlisa.registry import MODELS


class PAN(SafeInit, BaseModule):
    """Base of PicoDet's necks (Yu et al., "PP-PicoDet"): top-down and bottom-up fusion of one width, and one coarser map.

    Args:
        in_channels: channels of the backbone's maps, fine to coarse, each half the size of the one before (rounded up).
        out_channels: channels of the returned maps.
        norm_cfg: normalization of all convolutions.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        out_channels: int,
        norm_cfg: dict[str, Any] | None = None,
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        levels, width = len(in_channels), out_channels
        cfg = dict(norm_cfg=norm_cfg or dict(type="BN"), act_cfg=dict(type="HSwish"))
        self.pointwise = partial(ConvModule, kernel_size=1, **cfg)
        self.separable = partial(DepthwiseSeparableConvModule, kernel_size=5, padding=2, **cfg)
        self.transforms = nn.ModuleList(self.pointwise(channels, width) for channels in in_channels)
        self.top_down = nn.ModuleList(self.fusion(width) for _ in range(levels - 1))
        self.downsamples = nn.ModuleList(self.separable(width, width, stride=2) for _ in range(levels - 1))
        self.bottom_up = nn.ModuleList(self.fusion(width) for _ in range(levels - 1))
        self.top = nn.ModuleList(self.separable(width, width, stride=2) for _ in range(2))

    def fusion(self, width: int) -> nn.Module:
        """Return a block from two maps, concatenated, to one."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Map ``[B, C_i, H_i, W_i]``, fine to coarse -> as many ``[B, out_channels, H_i, W_i]``, and the coarser one."""
        inputs = [transform(x) for transform, x in zip(self.transforms, inputs, strict=True)]
        inner = [inputs[-1]]
        for x, fuse in zip(inputs[-2::-1], self.top_down, strict=True):
            up = F.interpolate(inner[0], size=x.shape[2:], mode="nearest")
            inner.insert(0, fuse(torch.cat([up, x], dim=1)))
        outs = [inner[0]]
        for x, down, fuse in zip(inner[1:], self.downsamples, self.bottom_up, strict=True):
            outs.append(fuse(torch.cat([down(outs[-1]), x], dim=1)))
        return (*outs, self.top[0](inputs[-1]) + self.top[1](outs[-1]))


class CSPFusion(nn.Module):
    """A cross-stage partial block: two halves by 1x1 convolutions, one through a bottleneck, merged again."""

    def __init__(self, pointwise: partial, separable: partial, width: int) -> None:
        super().__init__()
        half = width // 2
        self.main = nn.Sequential(pointwise(2 * width, half), pointwise(half, half), separable(half, half))
        self.short = pointwise(2 * width, half)
        self.merge = pointwise(2 * half, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(torch.cat([self.main(x), self.short(x)], dim=1))


@MODELS.register_module()
class CSPPAN(PAN):
    """CSP-PAN, the neck of PicoDet with ESNet; see :class:`PAN`."""

    def fusion(self, width: int) -> nn.Module:
        return CSPFusion(self.pointwise, self.separable, width)


@MODELS.register_module()
class LCPAN(PAN):
    """LC-PAN, the neck of PicoDet with LCNet, fusing by two depthwise separable convolutions; see :class:`PAN`."""

    def fusion(self, width: int) -> nn.Module:
        return nn.Sequential(self.separable(2 * width, 2 * width), self.separable(2 * width, width))


@MODELS.register_module()
class SimpleFeaturePyramid(SafeInit, BaseModule):
    """Pyramid on the last map of a plain backbone (Li et al., "Exploring Plain Vision Transformer Backbones", Sec. 3 and A.2).

    ``forward(maps)`` uses the last map, ``[B, in_channels, H, W]``; it returns five maps ``[B, out_channels, ...]`` of 4H x 4W,
    2H x 2W, H x W, H//2 x W//2 and (H//2 + 1)//2 x (W//2 + 1)//2, the last by subsampling. Transposed convolutions halve the
    channels as they double the size; then come a 1x1 and a 3x3 convolution, each followed by a LayerNorm.

    Args:
        in_channels: channels of the backbone's last map, a multiple of 4.
        out_channels: channels of every returned map.
        out_indices: which of the five maps are returned, such as ``(1, 2, 3)`` for strides of 8, 16 and 32 after patches of 16
            pixels.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        out_indices: Sequence[int] = (0, 1, 2, 3, 4),
        init_cfg: dict[str, Any] | list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if not out_indices or not set(out_indices) <= set(range(5)):
            raise UserError(f"out_indices={out_indices!r}; the pyramid has the maps 0 to 4")
        self.out_indices = tuple(sorted(set(out_indices)))
        half, quarter, double = in_channels // 2, in_channels // 4, partial(nn.ConvTranspose2d, kernel_size=2, stride=2)
        rescalings = [
            ([double(in_channels, half), LayerNorm2d(half), nn.GELU(), double(half, quarter)], quarter),
            ([double(in_channels, half)], half),
            ([], in_channels),
            ([nn.MaxPool2d(2, stride=2)], in_channels),
        ]
        self.levels = nn.ModuleDict()
        for index in sorted({min(i, 3) for i in out_indices}):
            rescaling, channels = rescalings[index]
            self.levels[str(index)] = nn.Sequential(
                *rescaling,
                nn.Conv2d(channels, out_channels, 1, bias=False),
                LayerNorm2d(out_channels),
                nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
                LayerNorm2d(out_channels),
            )

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        pyramid = {int(index): level(maps[-1]) for index, level in self.levels.items()}
        if 4 in self.out_indices:
            pyramid[4] = F.max_pool2d(pyramid[3], 1, stride=2)
        return tuple(pyramid[index] for index in self.out_indices)
