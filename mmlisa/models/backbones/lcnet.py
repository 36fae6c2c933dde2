"""PP-LCNet (Cui et al., 2021) and Castling's LCNet-ViT (You et al., "Castling-ViT", Tables 3, 5-7)."""

from typing import Any, ClassVar

from timm.layers import make_divisible
from torch import Tensor, nn

from mmlisa.models.layers.tokens import ConvStack, SqueezeExcite
from mmlisa.models.published import PADDLE_NORM, PADDLE_SE, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import Backbone, StageSize


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
    """PP-LCNet without its classifier; equal to timm's ``lcnet_*``. It has no residual paths and ignores ``drop_path_rate``.

    Args:
        arch: ``scale`` multiplies the widths 64, 128, 256, 512 of the stages.
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        f"x{scale}": dict(scale=scale) for scale in (0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
    }

    default_arch = "x1.0"
    convolutions = "fan-out"
    # Sizes of the kernels of each stage's blocks.
    kernels: ClassVar[tuple[tuple[int, ...], ...]] = ((3, 3), (3, 3), (3, 5, 5, 5, 5, 5), (5, 5))

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        return [StageSize(_width(64 * 2**stage, arch), 4 * 2**stage, 0) for stage in range(4)]

    def build_stem(self) -> nn.Module:
        channels = _width(16, self.arch)
        return ConvStack(
            nn.Conv2d(self.in_channels, channels, 3, 2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardswish(),
            DepthSepConv(channels, _width(32, self.arch), 3),
        )

    def build_downsample(self, stage: int) -> nn.Module:
        channels, (first, *others) = self.stage_channels[stage], self.kernels[stage]
        before, se = self.stage_channels[stage - 1] if stage else _width(32, self.arch), stage == 3
        shrinking = DepthSepConv(before, channels, first, stride=2, se=se)
        return ConvStack(shrinking, *(DepthSepConv(channels, channels, kernel, se=se) for kernel in others))

    # Names in timm and published weights.
    timm = (TimmNames("lcnet_{}", {arch.replace(".", "_"): arch for arch in arch_settings}),)
    first_conv = "stem.0"
    published: ClassVar[dict[Network, Rules]] = {
        Network("LCNet", ("conv_stem.weight", "blocks.5.1.se.conv_reduce.weight"), timm=("lcnet_",)): (
            (r"^conv_stem\.", "stem.0."),
            (r"^bn1\.", "stem.1."),
            (r"^blocks\.0\.0\.", "stem.3."),
            (r"^blocks\.([123])\.", r"stages.{\1-1}.downsample."),
            (r"^blocks\.4\.(\d+)\.", r"stages.2.downsample.{\1+2}."),
            (r"^blocks\.5\.", "stages.3.downsample."),
        ),
        Network("LCNet, Paddle's names", ("conv1.conv.weight", "blocks2.0.dw_conv.conv.weight")): (
            (r"^conv1\.conv\.", "stem.0."),
            (r"^conv1\.bn\.", "stem.1."),
            (r"^blocks2\.0\.", "stem.3."),
            (r"^blocks(\d)\.", r"stages.{\1-3}.downsample."),
            (r"\.dw_conv\.conv\.", ".conv_dw."),
            (r"\.dw_conv\.bn\.", ".bn1."),
            (r"\.pw_conv\.conv\.", ".conv_pw."),
            (r"\.pw_conv\.bn\.", ".bn2."),
            *PADDLE_SE,
            *PADDLE_NORM,
        ),
    }


def _width(width: int, arch: dict[str, Any]) -> int:
    """Channels of a layer that has ``width`` at scale 1."""
    return make_divisible(width * arch["scale"], 8)


@MODELS.register_module()
class CastlingLCNetViT(LCNet):
    """LCNet whose last two stages are a stride-2 convolution block and transformer blocks (Castling-ViT* of Table 3).

    Args:
        arch: ``depths``, ``num_heads``: of the two stages.
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

    default_arch = "small"
    entries = 2
    kernels = ((3, 3), (3, 3), (3,), (5,))

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        sizes = super().stage_sizes(arch)
        return [*sizes[:2], *(size._replace(depth=n) for size, n in zip(sizes[2:], arch["depths"], strict=True))]

    # Names in timm and published weights.
    timm = (TimmNames("castling_lcnet_{}", {"s": "small", "m": "medium", "l": "large"}),)
