"""iViT (Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Table 1) on the CAFormer layout.

The layout is that of "MetaFormer Baselines for Vision" (Yu et al., 2022): with softmax for interactive attention, ``tiny``,
``small`` and ``base`` are timm's ``caformer_s18``, ``caformer_s36`` and ``caformer_m36``. timm's blocks cannot be used: they do
not tell a mixer its grid.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import LayerNorm, Mlp, SepConv, StarReLU, stochastic_depth
from mmlisa.models.layers.tokens import to_tokens
from mmlisa.models.published import CAFORMER, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import DenseBackbone

EPS = 1e-6


class Scale(nn.Module):
    """A learned factor per channel, 1 at the start: ``[..., C] -> [..., C]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.to(x.dtype)


class Block(nn.Module):
    """``r1 x + DropPath(mixer(norm(x)))``, ``r2 x + DropPath(MLP(norm(x)))``, on ``[B, N, C]``; r1, r2 with ``res_scale``."""

    def __init__(self, channels: int, token_mixer: nn.Module, res_scale: bool, drop_path: float) -> None:
        super().__init__()
        self.norm1 = LayerNorm(channels, eps=EPS, bias=False)
        self.token_mixer = token_mixer
        self.res_scale1 = Scale(channels) if res_scale else nn.Identity()
        self.norm2 = LayerNorm(channels, eps=EPS, bias=False)
        self.mlp = Mlp(channels, 4 * channels, getattr(token_mixer, "mlp_conv", None), act=StarReLU(), bias=False)
        self.res_scale2 = Scale(channels) if res_scale else nn.Identity()
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = self.res_scale1(x) + self.drop_path(self.token_mixer(self.norm1(x), grid))
        return self.res_scale2(x) + self.drop_path(self.mlp(self.norm2(x), grid))


class Stem(nn.Module):
    """7x7 convolution of stride 4, LayerNorm: image -> tokens and their grid."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 7, stride=4, padding=2)
        self.norm = nn.LayerNorm(channels, eps=EPS, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x = self.conv(x)
        return self.norm(to_tokens(x)), tuple(x.shape[2:])


class Downsample(nn.Module):
    """LayerNorm, 3x3 convolution of stride 2: map -> tokens and their grid."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(in_channels, eps=EPS, bias=False)
        self.conv = nn.Conv2d(in_channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x = self.conv(self.norm(x.movedim(1, -1)).movedim(-1, 1))
        return to_tokens(x), tuple(x.shape[2:])


@MODELS.register_module()
class iViT(DenseBackbone):
    """iViT-T, -S, -B: separable convolutions in stages 1 and 2, interactive attention in stages 3 and 4.

    The sizes are CAFormer's: the stem, a 7x7 convolution of stride 4 and padding 2, gives (H + 1) // 4, and each later stage
    half of that, rounded up. Paper's drop path on ImageNet: 0.15 (T), 0.3 (S), 0.4 (B).

    Args:
        arch: ``mixers`` has a letter per stage: ``A``, the operator of ``attention``, or ``C``, a separable convolution.
    """

    mixers = ("mixers", "AC")
    default_arch = "tiny"
    eps = EPS
    convolutions = "truncated"  # as CAFormer; the operators' own parameters keep what they start from
    _hybrid: ClassVar[dict[str, Any]] = dict(
        mixers="CCAA", res_scale=(False, False, True, True), attention=dict(type="InteractiveAttention", landmarks=49)
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_hybrid, depths=(3, 3, 9, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "small": dict(_hybrid, depths=(3, 12, 18, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "base": dict(_hybrid, depths=(3, 12, 18, 3), channels=(96, 192, 384, 576), num_heads=(3, 6, 12, 18)),
    }

    def stage_grid(self, stage: int) -> tuple[int, ...]:
        return tuple(-(-((size + 1) // 4) // 2**stage) for size in self.image_size)

    def build_stem(self) -> nn.Module:
        return Stem(self.in_channels, self.stage_channels[0])

    def build_downsample(self, stage: int) -> nn.Module | None:
        return Downsample(*self.stage_channels[stage - 1 : stage + 1]) if stage else None

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, channels = self.arch, self.stage_channels[stage]
        if arch["mixers"][stage] == "C":
            mixer = SepConv(channels, act=StarReLU(), bias=False)
        else:
            mixer = build_attention(self.attention, channels, arch["num_heads"][stage], grid)
        return Block(channels, mixer, arch["res_scale"][stage], drop_path)

    # Names in timm and published weights.
    _head: ClassVar[dict[str, Any]] = dict(pre_norm=True, activation="SquaredReLU")
    timm = (TimmNames("ivit_{}", {"t": "tiny", "s": "small", "b": "base"}, hidden=_head, crop_pct=1.0),)
    first_conv = "stem.conv"
    published: ClassVar[dict[Network, Rules]] = {CAFORMER: ((r"\.token_mixer\.act1\.", ".token_mixer.act."),)}
