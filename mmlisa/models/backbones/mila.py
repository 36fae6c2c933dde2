"""MILA (Han et al., "Demystify Mamba in Vision: A Linear Attention Perspective"; in its code and first version "MLLA")."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import LayerNorm, Mlp, stochastic_depth
from mmlisa.models.layers.tokens import ConvStem, InvertedMerging, TokenConv
from mmlisa.models.published import CONV_PYRAMID_RULES, CONV_STEM, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import DenseBackbone

_STEM = dict(zip(("conv1", r"conv2\.0", r"conv2\.1", r"conv3\.0", r"conv3\.1"), CONV_STEM, strict=True))


class MILABlock(nn.Module):
    """Mamba's block around an attention, and an MLP, with a convolution before each: ``[B, N, C] -> [B, N, C]``."""

    def __init__(self, channels: int, attention: nn.Module, *, mlp_ratio: float, drop_path: float) -> None:
        super().__init__()
        self.cpe1 = TokenConv(channels, 3)
        self.norm1 = LayerNorm(channels)
        self.in_proj = nn.Linear(channels, channels)
        self.act_proj = nn.Linear(channels, channels)
        self.dwc = TokenConv(channels, 3)
        self.attn = attention
        self.out_proj = nn.Linear(channels, channels)
        self.cpe2 = TokenConv(channels, 3)
        self.norm2 = LayerNorm(channels)
        self.mlp = Mlp(channels, int(channels * mlp_ratio), getattr(attention, "mlp_conv", None))
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x + self.cpe1(x, grid)
        x = x + self.drop_path(self.mix(self.norm1(x), grid))
        x = x + self.cpe2(x, grid)
        return x + self.drop_path(self.mlp(self.norm2(x), grid))

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """The gated attention of normed tokens."""
        gate = F.silu(self.act_proj(x))
        x = F.silu(self.dwc(self.in_proj(x), grid))
        return self.out_proj(self.attn(x, grid) * gate)


@MODELS.register_module()
class MILA(DenseBackbone):
    """MILA-T / -S / -B. Nothing depends on the pretraining resolution. Paper's drop path on ImageNet: 0.2 (T), 0.3 (S), 0.5 (B).

    The norm of a classifier follows the last stage.
    """

    default_arch = "tiny"
    stem_shortcut: ClassVar[bool] = True
    last_norm: ClassVar[type[nn.Module]] = LayerNorm
    _common: ClassVar[dict[str, Any]] = dict(mlp_ratios=(4, 4, 4, 4), attention=dict(type="MILAAttention"))
    _deep: ClassVar[dict[str, Any]] = dict(_common, depths=(3, 6, 21, 6))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_common, depths=(2, 4, 8, 4), channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
        "small": dict(_deep, channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
        "base": dict(_deep, channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
    }

    def build_stem(self) -> nn.Module:
        return ConvStem(self.in_channels, self.stage_channels[0], shortcut=self.stem_shortcut)

    def build_downsample(self, stage: int) -> nn.Module | None:
        return InvertedMerging(*self.stage_channels[stage - 1 : stage + 1]) if stage else None

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        channels = self.stage_channels[stage]
        attention = build_attention(self.attention, channels, self.arch["num_heads"][stage], grid)
        return MILABlock(channels, attention, mlp_ratio=self.arch["mlp_ratios"][stage], drop_path=drop_path)

    def build_stage_norm(self, stage: int) -> nn.Module | None:
        is_last = stage == self.num_stages - 1
        return self.last_norm(self.stage_channels[stage]) if is_last and not self.output_norm else None

    # Names in timm and published weights.
    timm = (TimmNames("mila_{}", {"t": "tiny", "s": "small", "b": "base"}),)
    first_conv = "stem.shrink.linear"
    published: ClassVar[dict[Network, Rules]] = {
        Network("MILA", ("patch_embed.conv1.conv.weight", "layers.0.blocks.0.attn.qk.weight"), is_ours=True): (
            *((rf"^patch_embed\.{old}\.(conv|norm)\.", rf"stem.{new}.\1.") for old, new in _STEM.items()),
            *CONV_PYRAMID_RULES,
        )
    }
