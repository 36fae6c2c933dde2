"""PP-LCNet (Cui et al., 2021) and Castling's LCNet-ViT (You et al., "Castling-ViT", Tables 3, 5-7)."""

from typing import Any, ClassVar

from timm.layers import make_divisible
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import Block, ConvStack, SqueezeExcite, init_convolutions, init_linear
from mmlisa.registry import MODELS

from .base import Backbone, Stage


class DepthSepConv(nn.Module):
    """Depthwise convolution, BN, hard-swish, (SE,) pointwise convolution, BN, hard-swish; named as in timm."""

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
        arch: see :class:`Backbone`; ``scale`` multiplies the widths 64, 128, 256, 512 of the stages.
        options: see :class:`Backbone`. LCNet has no residual paths to drop and ignores ``drop_path_rate``.

    Raises:
        ValueError: see :class:`Backbone`.
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        f"x{scale}": dict(scale=scale) for scale in (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
    }

    def __init__(self, arch: str | dict[str, Any] = "x1.0", **options: Any) -> None:
        super().__init__(arch, **options)
        stem, c2, *channels = (make_divisible(width * self.arch["scale"], 8) for width in (16, 32, 64, 128, 256, 512))
        c4, c8, c16, c32 = channels
        self.stem = ConvStack(
            nn.Conv2d(self.in_channels, stem, 3, 2, padding=1, bias=False),
            nn.BatchNorm2d(stem),
            nn.Hardswish(),
            DepthSepConv(stem, c2, 3),
        )
        convolutions = (
            [DepthSepConv(c2, c4, 3, stride=2), DepthSepConv(c4, c4, 3)],
            [DepthSepConv(c4, c8, 3, stride=2), DepthSepConv(c8, c8, 3)],
            [DepthSepConv(c8, c16, 3, stride=2), *(DepthSepConv(c16, c16, 5) for _ in range(5))],
            [DepthSepConv(c16, c32, 5, stride=2, se=True), DepthSepConv(c32, c32, 5, se=True)],
        )
        self.stages = nn.ModuleList(Stage(downsample=blocks, with_cp=self.with_cp) for blocks in convolutions)
        self.set_outputs(channels, [4 * 2**i for i in range(self.num_stages)])
        init_convolutions(self)

    @classmethod
    def count_stages(cls, arch: dict[str, Any]) -> int:
        return 4


@MODELS.register_module()
class CastlingLCNetViT(LCNet):
    """LCNet whose last two stages are a stride-2 convolution block and transformer blocks (Castling-ViT* of Table 3).

    Args:
        arch: see :class:`Backbone`; ``depths``, ``num_heads``: of the two stages.
        options: see :class:`Backbone`.

    Raises:
        ValueError: see :class:`Backbone`.
    """

    _blocks: ClassVar[dict[str, Any]] = dict(
        depths=(1, 1),
        num_heads=(8, 16),
        mlp_ratio=2,
        mlp_conv=None,
        attention=dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_blocks, scale=0.75),
        "medium": dict(_blocks, scale=1.5),
        "large": dict(_blocks, scale=2.0),
    }

    def __init__(self, arch: str | dict[str, Any] = "small", **options: Any) -> None:
        super().__init__(arch, **options)
        arch, drop_paths = self.arch, self.drop_paths(self.arch["depths"])
        for stage, heads, rates in zip((2, 3), arch["num_heads"], drop_paths, strict=True):
            downsample = self.stages[stage].downsample[0]
            channels = downsample.conv_pw.out_channels
            grid = tuple(-(-n // 2 ** (stage + 2)) for n in self.image_size)
            blocks = [
                Block(
                    channels,
                    build_attention(self.attention, channels, heads, grid),
                    mlp_ratio=arch["mlp_ratio"],
                    mlp_conv=arch["mlp_conv"],
                    drop_path=rate,
                )
                for rate in rates
            ]
            self.stages[stage] = Stage(blocks, downsample=[downsample], with_cp=self.with_cp)
        init_linear(self)
        init_convolutions(self)
        self.train()  # freezes what replaced a stage

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        """Check nothing: ``depths`` and ``num_heads`` belong to the last two stages, which the constructor counts."""
