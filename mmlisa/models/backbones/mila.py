"""MILA (Han et al., "Demystify Mamba in Vision: A Linear Attention Perspective"; in its code and first version "MLLA")."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import LayerNorm, Mlp, TokenConv
from mmlisa.registry import MODELS

from .conv_pyramid import ConvPyramid


class MILABlock(nn.Module):
    """Mamba's block around an attention, and an MLP, with a convolution before each: ``[B, N, C] -> [B, N, C]``.

    Args:
        channels: C.
        attention: called as ``attention(tokens, grid)``.
        mlp_ratio: hidden width of the MLP over C.
        drop_path: rate of stochastic depth.
    """

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
        self.drop_path = DropPath(drop_path)

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
class MILA(ConvPyramid):
    """MILA-T / -S / -B.

    The arguments are :class:`ConvPyramid`'s. Paper's drop path on ImageNet: 0.2 (T), 0.3 (S), 0.5 (B).
    """

    stem_shortcut = True
    classifier_norm = "LN"
    _common: ClassVar[dict[str, Any]] = dict(mlp_ratios=(4, 4, 4, 4), attention=dict(type="MILAAttention"))
    _deep: ClassVar[dict[str, Any]] = dict(_common, depths=(3, 6, 21, 6))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_common, depths=(2, 4, 8, 4), channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
        "small": dict(_deep, channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
        "base": dict(_deep, channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
    }

    def __init__(self, arch: str | dict[str, Any] = "tiny", **options: Any) -> None:
        super().__init__(arch, **options)

    def build_block(self, stage: int, drop_path: float, grid: tuple[int, int]) -> nn.Module:
        channels = self.arch["channels"][stage]
        attention = build_attention(self.attention, channels, self.arch["num_heads"][stage], grid)
        return MILABlock(channels, attention, mlp_ratio=self.arch["mlp_ratios"][stage], drop_path=drop_path)
