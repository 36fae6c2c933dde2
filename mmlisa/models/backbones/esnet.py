"""Enhanced ShuffleNet (Yu et al., "PP-PicoDet") and Castling's ESNet-ViT (You et al., "Castling-ViT", Table 3)."""

from typing import Any, ClassVar

import torch
from timm.layers import make_divisible
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import Block, ConvStack, SqueezeExcite, init_convolutions, init_linear
from mmlisa.registry import MODELS

from .base import Backbone, Stage


class ConvNormAct(nn.Sequential):
    """Convolution, BN, (hard-swish)."""

    def __init__(
        self, in_channels: int, channels: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True
    ) -> None:
        layers = [
            nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(channels),
        ]
        super().__init__(*layers, *([nn.Hardswish()] if act else []))


def depthwise_norm(channels: int, stride: int = 1, act: bool = False) -> ConvNormAct:
    """Depthwise 3x3 convolution, BN, (hard-swish)."""
    return ConvNormAct(channels, channels, 3, stride, groups=channels, act=act)


class ESBlock(nn.Module):
    """Stride-1 block: half of the channels pass, the other half goes through a ghost bottleneck with SE; then a shuffle."""

    def __init__(self, channels: int, mid_channels: int) -> None:
        super().__init__()
        half, mid = channels // 2, mid_channels // 2
        self.pointwise = ConvNormAct(half, mid, 1)
        self.depthwise = depthwise_norm(mid)
        self.se = SqueezeExcite(2 * mid)
        self.linear = ConvNormAct(2 * mid, half, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, x = x.chunk(2, dim=1)
        x = self.pointwise(x)
        x = self.linear(self.se(torch.cat([x, self.depthwise(x)], dim=1)))
        return torch.stack([kept, x], dim=2).flatten(1, 2)


class ESDownBlock(nn.Module):
    """Stride-2 block: two branches of half of the output channels each, then a depthwise separable convolution."""

    def __init__(self, in_channels: int, channels: int, mid_channels: int) -> None:
        super().__init__()
        half, mid = channels // 2, mid_channels // 2
        self.branch1 = nn.Sequential(depthwise_norm(in_channels, stride=2), ConvNormAct(in_channels, half, 1))
        self.branch2 = nn.Sequential(
            ConvNormAct(in_channels, mid, 1),
            depthwise_norm(mid, stride=2),
            SqueezeExcite(mid),
            ConvNormAct(mid, half, 1),
        )
        self.merge = nn.Sequential(depthwise_norm(channels, act=True), ConvNormAct(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(torch.cat([self.branch1(x), self.branch2(x)], dim=1))


@MODELS.register_module()
class ESNet(Backbone):
    """ESNet, PicoDet's backbone.

    ``forward(image: [B, 3, H, W])`` returns one map per stage in ``out_indices``, at strides 8, 16, 32, for any H and W of
    at least 32.

    Args:
        arch: see :class:`Backbone`; ``scale`` multiplies the widths 128, 256, 512 of the stages, ``mid_ratios`` holds the width
            inside each block over its output, per stage.
        options: see :class:`Backbone`. ESNet has no residual paths to drop and ignores ``drop_path_rate``.

    Raises:
        ValueError: see :class:`Backbone`.
    """

    _narrow: ClassVar = ((0.875, 0.5, 0.5), (0.5, 0.625, 0.5, 0.625, 0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    _wide: ClassVar = ((0.875, 0.5, 1.0), (0.625, 0.5, 0.75, 0.625, 0.625, 0.5, 0.625), (1.0, 0.625, 0.75))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "x0.75": dict(scale=0.75, mid_ratios=_narrow),
        "x1.0": dict(scale=1.0, mid_ratios=_wide),
        "x1.25": dict(scale=1.25, mid_ratios=_wide),
    }

    def __init__(self, arch: str | dict[str, Any] = "x1.0", **options: Any) -> None:
        super().__init__(arch, **options)
        widths = [make_divisible(width * self.arch["scale"], 16) for width in (128, 256, 512)]
        channels = 24
        self.stem = ConvStack(ConvNormAct(self.in_channels, channels, 3, 2), nn.MaxPool2d(3, 2, padding=1))
        self.stages = nn.ModuleList()
        for width, ratios in zip(widths, self.arch["mid_ratios"], strict=True):
            first, *rest = (make_divisible(int(width * ratio), 8) for ratio in ratios)
            blocks = [ESDownBlock(channels, width, first), *(ESBlock(width, mid) for mid in rest)]
            self.stages.append(Stage(downsample=blocks, with_cp=self.with_cp))
            channels = width
        self.set_outputs(widths, [8 * 2**i for i in range(self.num_stages)])
        init_convolutions(self)

    @classmethod
    def count_stages(cls, arch: dict[str, Any]) -> int:
        return 3


@MODELS.register_module()
class CastlingESNetViT(ESNet):
    """ESNet whose last stage is its stride-2 block and transformer blocks (Castling-ViT† of Table 3).

    Args:
        arch: see :class:`Backbone`; ``depth``, ``num_heads``: of the last stage.
        options: see :class:`Backbone`.

    Raises:
        ValueError: see :class:`Backbone`.
    """

    _blocks: ClassVar[dict[str, Any]] = dict(
        depth=2,
        num_heads=16,
        mlp_ratio=2,
        mlp_conv=5,
        attention=dict(type="LinearAngularAttention", pooled=True, aux=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_blocks, scale=0.75, mid_ratios=ESNet._narrow),
        "medium": dict(_blocks, scale=1.0, mid_ratios=ESNet._wide),
        "large": dict(_blocks, scale=1.25, mid_ratios=ESNet._wide),
    }

    def __init__(self, arch: str | dict[str, Any] = "small", **options: Any) -> None:
        super().__init__(arch, **options)
        arch = self.arch
        downsample = self.stages[-1].downsample[0]
        channels = downsample.merge[-1][0].out_channels
        grid = tuple(-(-n // 32) for n in self.image_size)
        blocks = [
            Block(
                channels,
                build_attention(self.attention, channels, arch["num_heads"], grid),
                mlp_ratio=arch["mlp_ratio"],
                mlp_conv=arch["mlp_conv"],
                drop_path=rate,
            )
            for rate in self.drop_paths([arch["depth"]])[0]
        ]
        self.stages[-1] = Stage(blocks, downsample=[downsample], with_cp=self.with_cp)
        init_linear(self)
        init_convolutions(self)
        self.train()  # freezes what replaced a stage
