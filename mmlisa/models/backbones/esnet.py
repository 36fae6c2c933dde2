"""Enhanced ShuffleNet (Yu et al., "PP-PicoDet") and Castling's ESNet-ViT (You et al., "Castling-ViT", Table 3)."""

from typing import Any, ClassVar

import torch
from timm.layers import make_divisible
from torch import Tensor, nn

from mmlisa.models.layers.tokens import ConvStack, SqueezeExcite
from mmlisa.models.published import PADDLE_NORM, PADDLE_SE, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import Backbone, StageSize

STEM_CHANNELS = 24


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
        passed, x = x.chunk(2, dim=1)
        x = self.pointwise(x)
        x = self.linear(self.se(torch.cat([x, self.depthwise(x)], dim=1)))
        return torch.stack([passed, x], dim=2).flatten(1, 2)


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
    """ESNet, PicoDet's backbone, at strides 8, 16, 32. It has no residual paths to drop and ignores ``drop_path_rate``.

    Args:
        arch: ``scale`` multiplies the widths 128, 256, 512 of the stages, ``mid_ratios`` holds the width inside each block over
            its output, per stage.
    """

    _narrow: ClassVar = ((0.875, 0.5, 0.5), (0.5, 0.625, 0.5, 0.625, 0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    _wide: ClassVar = ((0.875, 0.5, 1.0), (0.625, 0.5, 0.75, 0.625, 0.625, 0.5, 0.625), (1.0, 0.625, 0.75))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "x0.75": dict(scale=0.75, mid_ratios=_narrow),
        "x1.0": dict(scale=1.0, mid_ratios=_wide),
        "x1.25": dict(scale=1.25, mid_ratios=_wide),
    }

    default_arch = "x1.0"
    entries = 3
    convolutions = "fan-out"

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        widths = (make_divisible(width * arch["scale"], 16) for width in (128, 256, 512))
        return [StageSize(width, 8 * 2**stage, 0) for stage, width in enumerate(widths)]

    def build_stem(self) -> nn.Module:
        return ConvStack(ConvNormAct(self.in_channels, STEM_CHANNELS, 3, 2), nn.MaxPool2d(3, 2, padding=1))

    def build_downsample(self, stage: int) -> nn.Module:
        before, width = self.stage_channels[stage - 1] if stage else STEM_CHANNELS, self.stage_channels[stage]
        first, *others = (make_divisible(int(width * ratio), 8) for ratio in self.arch["mid_ratios"][stage])
        return ConvStack(ESDownBlock(before, width, first), *(ESBlock(width, inside) for inside in others))

    # Names in timm and published weights.
    timm = (TimmNames("esnet_{}", {arch.replace(".", "_"): arch for arch in arch_settings}),)
    first_conv = "stem.0.0"
    published: ClassVar[dict[Network, Rules]] = {
        Network("ESNet, Paddle's names", ("_conv1._conv.weight", "2_1._conv_dw_1._conv.weight")): (
            (r"^_conv1\.", "stem.0."),
            (r"^(\d)_(\d+)\.", r"stages.{\1-2}.downsample.{\2-1}."),
            (r"\._conv_dw_1\.", ".branch1.0."),
            (r"\._conv_linear_1\.", ".branch1.1."),
            (r"\._conv_pw_2\.", ".branch2.0."),
            (r"\._conv_dw_2\.", ".branch2.1."),
            (r"(downsample\.0)\._se\.", r"\1.branch2.2."),
            (r"\._conv_linear_2\.", ".branch2.3."),
            (r"\._conv_dw_mv1\.", ".merge.0."),
            (r"\._conv_pw_mv1\.", ".merge.1."),
            (r"\._conv_pw\.", ".pointwise."),
            (r"\._conv_dw\.", ".depthwise."),
            (r"\._se\.", ".se."),
            (r"\._conv_linear\.", ".linear."),
            (r"\._conv\.", ".0."),
            (r"\._batch_norm\.", ".1."),
            *PADDLE_SE,
            *PADDLE_NORM,
        )
    }


@MODELS.register_module()
class CastlingESNetViT(ESNet):
    """ESNet whose last stage is its stride-2 block and transformer blocks (Castling-ViT† of Table 3).

    Args:
        arch: ``depth``, ``num_heads``: of the last stage.
    """

    _blocks: ClassVar[dict[str, Any]] = dict(
        depth=2,
        num_heads=16,
        mlp_ratio=2,
        mlp_conv=5,
        attention=dict(type="LinearAngularAttention", pooled=True, aux=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_blocks, scale=0.75, mid_ratios=(*ESNet._narrow[:2], (0.5,))),
        "medium": dict(_blocks, scale=1.0, mid_ratios=(*ESNet._wide[:2], (1.0,))),
        "large": dict(_blocks, scale=1.25, mid_ratios=(*ESNet._wide[:2], (1.0,))),
    }

    default_arch = "small"

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        *sizes, last = super().stage_sizes(arch)
        return [*sizes, last._replace(depth=arch["depth"])]

    # Names in timm and published weights.
    timm = (TimmNames("castling_esnet_{}", {"s": "small", "m": "medium", "l": "large"}),)
