"""PP-LCNet (Cui et al., 2021) and Castling's LCNet-ViT (You et al., "Castling-ViT", Tables 3, 5-7)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from timm.layers import make_divisible
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import MapBlock, SqueezeExcite, init_layers
from mmlisa.registry import MODELS

from .base import Backbone


class DepthSepConv(nn.Module):
    """Depthwise convolution, BN, hard-swish, (SE,) pointwise convolution, BN, hard-swish; named as timm's."""

    def __init__(self, in_channels: int, channels: int, kernel: int, stride: int = 1, se: bool = False) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(in_channels, in_channels, kernel, stride, kernel // 2, groups=in_channels, bias=False)
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.se = SqueezeExcite(in_channels) if se else nn.Identity()
        self.conv_pw = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.act = nn.Hardswish()

    def forward(self, x: Tensor) -> Tensor:
        x = self.se(self.act(self.bn1(self.conv_dw(x))))
        return self.act(self.bn2(self.conv_pw(x)))


@MODELS.register_module()
class LCNet(Backbone):
    """PP-LCNet without its classifier; equal to timm's ``lcnet_*``.

    ``forward(image: [B, 3, H, W])`` returns one map per stage in ``out_indices``, at strides 4, 8, 16, 32, for any H and W
    of at least 32.

    Args:
        arch: a name of ``arch_settings`` or a dict; ``scale`` multiplies the widths 64, 128, 256, 512 of the stages.
        drop_path_rate: every backbone has it; LCNet has no residual paths to drop, and ignores it.
        in_channels: channels of the image.
        out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`Backbone`.

    Raises:
        ValueError: an unknown arch or key, an index out of range, an image smaller than 32.
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        f"x{scale}": dict(scale=scale) for scale in (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
    }

    def __init__(
        self,
        arch: str | dict[str, Any] = "x1.0",
        *,
        drop_path_rate: float = 0.0,
        in_channels: int = 3,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        super().__init__(
            num_stages=4,
            out_indices=out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            with_cp=with_cp,
            init_cfg=init_cfg,
        )
        arch = self.resolve_arch(arch)
        c2, c4, c8, c16, c32 = channels = [
            make_divisible(width * arch["scale"], 8) for width in (32, 64, 128, 256, 512)
        ]
        stem = make_divisible(16 * arch["scale"], 8)
        self.feature_channels = tuple(channels[i + 1] for i in self.out_indices)
        self.feature_strides = tuple(4 * 2**i for i in self.out_indices)

        self.conv_stem = nn.Conv2d(in_channels, stem, 3, 2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.act = nn.Hardswish()
        self.blocks = nn.ModuleList(
            nn.Sequential(*blocks)
            for blocks in (
                [DepthSepConv(stem, c2, 3)],
                [DepthSepConv(c2, c4, 3, stride=2), DepthSepConv(c4, c4, 3)],
                [DepthSepConv(c4, c8, 3, stride=2), DepthSepConv(c8, c8, 3)],
                [DepthSepConv(c8, c16, 3, stride=2), *(DepthSepConv(c16, c16, 5) for _ in range(5))],
                [DepthSepConv(c16, c32, 5, stride=2, se=True), DepthSepConv(c32, c32, 5, se=True)],
            )
        )
        init_layers(self)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``[B, 3, H, W]`` -> one ``[B, C_i, ceil(H / s_i), ceil(W / s_i)]`` per output stage."""
        self.check_image(image)
        x = self.blocks[0](self.act(self.bn1(self.conv_stem(image))))
        maps = []
        for i, blocks in enumerate(self.blocks[1:]):
            for block in blocks:
                x = self.run_block(block, x)
            if i in self.out_indices:
                maps.append(x.contiguous())
        return tuple(maps)

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        if stage == 0:
            return [self.conv_stem, self.bn1, self.blocks[0]]
        return [self.blocks[stage]]


@MODELS.register_module()
class CastlingLCNetViT(LCNet):
    """LCNet whose last two stages are a stride-2 convolution block and transformer blocks (Castling-ViT* of Table 3).

    Args:
        arch: ``'small'``, ``'medium'``, ``'large'``, or a dict of their keys.
        attention: operator of the transformer blocks; None: linear-angular with the auxiliary branch, pooled, without qkv bias.
        image_size: pretraining resolution in pixels: the grids of operators that keep one.
        drop_path_rate: of the last transformer block, growing linearly from 0.
        in_channels, out_indices, frozen_stages, norm_eval, with_cp, init_cfg: see :class:`LCNet`.

    Raises:
        ValueError: an unknown arch, key or operator, an index out of range, an image smaller than 32.
    """

    _blocks: ClassVar[dict[str, Any]] = dict(depths=(1, 1), num_heads=(8, 16), mlp_ratio=2, mlp_conv=None)
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_blocks, scale=0.75),
        "medium": dict(_blocks, scale=1.5),
        "large": dict(_blocks, scale=2.0),
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
        attention = attention or dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=True)
        rates = iter(torch.linspace(0, drop_path_rate, sum(arch["depths"]), device="cpu").tolist())
        for stage, depth, heads in zip((3, 4), arch["depths"], arch["num_heads"], strict=True):
            downsample = self.blocks[stage][0]
            channels = downsample.conv_pw.out_channels
            side = -(-image_size // 2 ** (stage + 1))
            blocks = [
                MapBlock(
                    channels,
                    build_attention(attention, channels, heads, (side, side)),
                    mlp_ratio=arch["mlp_ratio"],
                    mlp_conv=arch["mlp_conv"],
                    norm_eps=1e-6,
                    drop_path=next(rates),
                )
                for _ in range(depth)
            ]
            self.blocks[stage] = nn.Sequential(downsample, *blocks)
        init_layers(self.blocks)
