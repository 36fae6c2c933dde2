"""iViT (Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Table 1) on the CAFormer layout.

The layout is that of "MetaFormer Baselines for Vision" (Yu et al., 2022): with softmax for interactive attention, ``tiny``,
``small`` and ``base`` are timm's ``caformer_s18``, ``caformer_s36`` and ``caformer_m36``. timm's blocks cannot be used: they do
not tell a mixer its grid.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from timm.layers import DropPath
from timm.models.metaformer import StarReLU
from torch import Tensor, nn

from mmlisa.models.arch import parse_mixers
from mmlisa.models.attention import build_attention
from mmlisa.models.layers import LayerNorm, Mlp, SepConv, init_stem_biases, to_tokens
from mmlisa.registry import MODELS

from .base import Backbone, Stage

EPS = 1e-6


class Scale(nn.Module):
    """A learned factor per channel, 1 at the start: ``[..., C] -> [..., C]``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


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
        self.drop_path = DropPath(drop_path)

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
class iViT(Backbone):
    """iViT-T, -S, -B: separable convolutions in stages 1 and 2, interactive attention in stages 3 and 4.

    ``forward(image: [B, 3, H, W])`` returns one map per stage in ``out_indices``, for any H and W of at least 32. The sizes are
    CAFormer's: the stem, a 7x7 convolution of stride 4 and padding 2, gives (H + 1) // 4, and each later stage half of that,
    rounded up.

    Args:
        arch: see :class:`Backbone`. ``mixers`` has a letter per stage: ``A``, the operator of ``attention``, or
            ``C``, a separable convolution.
        output_norm: a LayerNorm per returned map, as dense tasks need; the classifier has its own after the pooling.
        options: see :class:`Backbone`. Paper's drop path on ImageNet: 0.15 (T), 0.3 (S), 0.4 (B).

    Raises:
        ValueError: see :class:`Backbone`; an unknown mixer.
    """

    _hybrid: ClassVar[dict[str, Any]] = dict(
        mixers="CCAA",
        res_scale=(False, False, True, True),
        attention=dict(type="InteractiveAttention", landmarks=49),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_hybrid, depths=(3, 3, 9, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "small": dict(_hybrid, depths=(3, 12, 18, 3), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "base": dict(_hybrid, depths=(3, 12, 18, 3), channels=(96, 192, 384, 576), num_heads=(3, 6, 12, 18)),
    }

    def __init__(self, arch: str | dict[str, Any] = "tiny", *, output_norm: bool = True, **options: Any) -> None:
        super().__init__(arch, **options)
        arch, channels = self.arch, self.arch["channels"]
        self.mixers = parse_mixers("arch: mixers", arch["mixers"], self.num_stages, "AC")
        self.stem = Stem(self.in_channels, channels[0])
        self.stages = nn.ModuleList()
        grid = tuple((n + 1) // 4 for n in self.image_size)
        for i, drop_paths in enumerate(self.drop_paths(arch["depths"])):
            if i:
                grid = tuple(-(-n // 2) for n in grid)
            blocks = [Block(channels[i], self._build_mixer(i, grid), arch["res_scale"][i], rate) for rate in drop_paths]
            downsample = Downsample(channels[i - 1], channels[i]) if i else None
            self.stages.append(Stage(blocks, downsample=downsample, with_cp=self.with_cp))
        strides = [4 * 2**i for i in range(self.num_stages)]
        self.set_outputs(channels, strides, partial(nn.LayerNorm, eps=EPS) if output_norm else None)
        self._init_layers()
        init_stem_biases(self.stem)

    def _build_mixer(self, stage: int, grid: tuple[int, int]) -> nn.Module:
        channels = self.arch["channels"][stage]
        if self.mixers[stage] == "C":
            return SepConv(channels, act=StarReLU(), bias=False)
        return build_attention(self.attention, channels, self.arch["num_heads"][stage], grid)

    def _init_layers(self) -> None:
        """Truncated normal 0.02, as CAFormer; the operators' own parameters keep what they start from."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
