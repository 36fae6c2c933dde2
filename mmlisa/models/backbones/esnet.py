"""Enhanced ShuffleNet (Yu et al., "PP-PicoDet") and Castling's ESNet-ViT (You et al., "Castling-ViT", Table 3)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from timm.layers import make_divisible
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import MapBlock, SqueezeExcite, init_layers
from mmlisa.registry import MODELS

from .base import Backbone


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


def depthwise(channels: int, stride: int = 1, act: bool = False) -> ConvNormAct:
    return ConvNormAct(channels, channels, 3, stride, groups=channels, act=act)


class ESBlock(nn.Module):
    """Stride-1 block: half of the channels pass, the other half goes through a ghost bottleneck with SE; then a shuffle."""

    def __init__(self, channels: int, mid_channels: int) -> None:
        super().__init__()
        half, mid = channels // 2, mid_channels // 2
        self.pointwise = ConvNormAct(half, mid, 1)
        self.depthwise = depthwise(mid)
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
        self.branch1 = nn.Sequential(depthwise(in_channels, stride=2), ConvNormAct(in_channels, half, 1))
        self.branch2 = nn.Sequential(
            ConvNormAct(in_channels, mid, 1), depthwise(mid, stride=2), SqueezeExcite(mid), ConvNormAct(mid, half, 1)
        )
        self.merge = nn.Sequential(depthwise(channels, act=True), ConvNormAct(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(torch.cat([self.branch1(x), self.branch2(x)], dim=1))


@MODELS.register_module()
class ESNet(Backbone):
    """ESNet, PicoDet's backbone.

    ``forward(image: [B, 3, H, W])`` returns one map per stage in ``out_indices``, at strides 8, 16, 32, for any H and W of
    at least 32.

    Args:
        arch: a name of ``arch_settings`` or a dict: ``scale`` multiplies the widths 128, 256, 512 of the stages,
            ``mid_ratios`` holds the width inside each block over its output, per stage.
        drop_path_rate: every backbone has it; ESNet has no residual paths to drop, and ignores it.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch or key, an index out of range, an image smaller than 32.
    """

    _narrow: ClassVar = ((0.875, 0.5, 0.5), (0.5, 0.625, 0.5, 0.625, 0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    _wide: ClassVar = ((0.875, 0.5, 1.0), (0.625, 0.5, 0.75, 0.625, 0.625, 0.5, 0.625), (1.0, 0.625, 0.75))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "x0.75": dict(scale=0.75, mid_ratios=_narrow),
        "x1.0": dict(scale=1.0, mid_ratios=_wide),
        "x1.25": dict(scale=1.25, mid_ratios=_wide),
    }

    def __init__(
        self,
        arch: str | dict[str, Any] = "x1.0",
        *,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] = (0, 1, 2),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        super().__init__(
            num_stages=3,
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        arch = self.resolve_arch(arch)
        widths = [make_divisible(width * arch["scale"], 16) for width in (128, 256, 512)]
        self.feature_channels = tuple(widths[i] for i in self.out_indices)
        self.feature_strides = tuple(8 * 2**i for i in self.out_indices)

        channels = 24
        self.stem = nn.Sequential(ConvNormAct(in_channels, channels, 3, 2), nn.MaxPool2d(3, 2, padding=1))
        self.stages = nn.ModuleList()
        for width, ratios in zip(widths, arch["mid_ratios"], strict=True):
            first, *rest = (make_divisible(int(width * ratio), 8) for ratio in ratios)
            self.stages.append(
                nn.Sequential(ESDownBlock(channels, width, first), *(ESBlock(width, mid) for mid in rest))
            )
            channels = width
        init_layers(self)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per output stage."""
        self.check_image(image)
        x = self.stem(image)
        maps = []
        for i, blocks in enumerate(self.stages):
            for block in blocks:
                x = self.run_block(block, x)
            if i in self.out_indices:
                maps.append(x.contiguous())
        return tuple(maps)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        return [self.stem if stage == 0 else self.stages[stage - 1]]


@MODELS.register_module()
class CastlingESNetViT(ESNet):
    """ESNet whose last stage is its stride-2 block and transformer blocks (Castling-ViT† of Table 3).

    Args:
        arch: ``'small'``, ``'medium'``, ``'large'``, or a dict of their keys.
        attention: operator of the transformer blocks; None: linear-angular with the auxiliary branch, pooled.
        image_size: pretraining resolution in pixels: the grid of operators that keep one.
        drop_path_rate: of the last transformer block, growing linearly from 0.
        in_channels, out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`ESNet`.

    Raises:
        ValueError: an unknown arch, key or operator, an index out of range, an image smaller than 32.
    """

    _blocks: ClassVar[dict[str, Any]] = dict(depth=2, num_heads=16, mlp_ratio=2, mlp_conv=5)
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_blocks, scale=0.75, mid_ratios=ESNet._narrow),
        "medium": dict(_blocks, scale=1.0, mid_ratios=ESNet._wide),
        "large": dict(_blocks, scale=1.25, mid_ratios=ESNet._wide),
    }

    def __init__(
        self,
        arch: str | dict[str, Any] = "small",
        *,
        attention: dict[str, Any] | None = None,
        image_size: int = 224,
        drop_path_rate: float = 0.0,
        **options,
    ) -> None:
        super().__init__(arch, **options)
        arch = self.resolve_arch(arch)
        attention = attention or dict(type="LinearAngularAttention", pooled=True, aux=True)
        downsample = self.stages[-1][0]
        channels, side = downsample.merge[-1][0].out_channels, -(-image_size // 32)
        blocks = [
            MapBlock(
                channels,
                build_attention(attention, channels, arch["num_heads"], (side, side)),
                mlp_ratio=arch["mlp_ratio"],
                mlp_conv=arch["mlp_conv"],
                norm_eps=1e-6,
                drop_path=rate,
            )
            for rate in torch.linspace(0, drop_path_rate, arch["depth"], device="cpu").tolist()
        ]
        self.stages[-1] = nn.Sequential(downsample, *blocks)
        init_layers(self.stages[-1])
