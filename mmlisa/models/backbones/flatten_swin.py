"""FLatten-Swin (Han et al., "FLatten Transformer", Table 14; host: Liu et al., "Swin Transformer")."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.layers import PatchEmbed
from mmlisa.registry import MODELS

from .pyramid import TokenPyramid


class PatchMerging(nn.Module):
    """2x2 neighbours side by side, LayerNorm, Linear: map ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * in_channels)
        self.reduction = nn.Linear(4 * in_channels, channels, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        height, width = x.shape[2:]
        x = F.pad(x, (0, width % 2, 0, height % 2)).permute(0, 2, 3, 1)
        # Swin's own order: down before right.
        x = torch.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], dim=3)
        return self.reduction(self.norm(x.flatten(1, 2))), tuple(x.shape[1:3])


@MODELS.register_module()
class FLattenSwin(TokenPyramid):
    """FLatten-Swin-T / -S / -B; with ``attn_type='SSSS'`` it is Swin.

    In the ``A`` stages (the paper's ``L``), the paper's window of 56 covers the whole map at 224 pixels. Here these stages attend
    globally at any size; ``attention=dict(window=56, shift=True)`` restores the windows. The arguments are
    :class:`TokenPyramid`'s. Paper's drop path: 0.2 (T), 0.3 (S), 0.5 (B).
    """

    no_decay = ("relative_position_bias_table",)
    _common: ClassVar[dict[str, Any]] = dict(
        attn_type="AASS",
        attention=dict(type="FocusedLinearAttention"),
        mlp_ratios=(4, 4, 4, 4),
        window_size=7,
        image_size=224,
    )
    _pola: ClassVar[dict[str, Any]] = {**_common, "attention": dict(type="PolarityAwareAttention")}
    _base: ClassVar[dict[str, Any]] = dict(
        depths=(2, 2, 18, 2), channels=(128, 256, 512, 1024), num_heads=(4, 8, 16, 32)
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_common, depths=(2, 2, 6, 2), channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
        "small": dict(_common, depths=(2, 2, 18, 2), channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
        "base": dict(_common, **_base),
        "base-384": {**_common, **_base, "window_size": 12, "image_size": 384},
        "pola-tiny": dict(_pola, depths=(2, 2, 6, 2), channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
        "pola-small": dict(_pola, depths=(2, 2, 18, 2), channels=(96, 192, 384, 768), num_heads=(3, 6, 12, 24)),
        "pola-base": dict(_pola, **_base),
        "pola-base-384": {**_pola, **_base, "window_size": 12, "image_size": 384},
    }

    def __init__(self, arch: str | dict[str, Any] = "tiny", **options: Any) -> None:
        super().__init__(arch, **options)

    def build_embed(self, stage: int, in_channels: int, channels: int, grid: tuple[int, int]) -> nn.Module:
        if stage:
            return PatchMerging(in_channels, channels)
        return PatchEmbed(in_channels, channels, 4, 4, norm=nn.LayerNorm(channels))

    def host_attention(self, stage: int, block: int) -> dict[str, Any]:
        return dict(type="ShiftedWindowAttention", window_size=self.arch["window_size"], shift=block % 2 == 1)
