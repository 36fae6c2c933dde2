"""FLatten-PVT and FLatten-PVTv2 (Han et al., "FLatten Transformer", Tables 10-13; hosts: Wang et al., PVT and PVTv2)."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlisa.models.layers import PatchEmbed, PositionResize, PositionsOnLoad, init_convolutions, init_stem_biases
from mmlisa.registry import MODELS

from .pyramid import TokenPyramid


class PositionedPatchEmbed(PositionsOnLoad, PatchEmbed):
    """A patch embedding and a learned position for each of its tokens on the pretraining ``grid``."""

    on_grid = ("position",)

    def __init__(self, in_channels: int, channels: int, stride: int, grid: tuple[int, int]) -> None:
        super().__init__(in_channels, channels, stride, stride, norm=nn.LayerNorm(channels))
        self.position = nn.Parameter(torch.empty(1, grid[0] * grid[1], channels))
        self.resize = PositionResize(grid)
        nn.init.trunc_normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        x, grid = super().forward(x)
        return x + self.resize(self.position, grid), grid


class _PVT(TokenPyramid):
    """Base of both versions: the widths, and spatial-reduction attention as their own (``S``)."""

    norm_eps = 1e-6
    _common: ClassVar[dict[str, Any]] = dict(
        attn_type="AAAA",
        attention=dict(type="FocusedLinearAttention"),
        channels=(64, 128, 320, 512),
        num_heads=(1, 2, 5, 8),
        mlp_ratios=(8, 8, 4, 4),
        sr_ratios=(8, 4, 2, 1),
        image_size=224,
    )

    def host_attention(self, stage: int, block: int) -> dict[str, Any]:
        return dict(type="SpatialReductionAttention", sr_ratio=self.arch["sr_ratios"][stage])


@MODELS.register_module()
class FLattenPVT(_PVT):
    """FLatten-PVT-T / -S / -M / -L; with ``attn_type='SSSS'`` it is PVT, without its class token.

    The maps are not normalised, as in the official classifier. The official code has a last norm that is part of its checkpoints
    and parameter counts but is never applied; here it is frozen. The arguments are :class:`TokenPyramid`'s. Paper's drop path:
    0.1 (T, S), 0.3 (M, L).
    """

    stage_norm = None
    _pola: ClassVar[dict[str, Any]] = {**_PVT._common, "attention": dict(type="PolarityAwareAttention")}
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_PVT._common, depths=(2, 2, 2, 2)),
        "small": dict(_PVT._common, depths=(3, 4, 6, 3)),
        "medium": dict(_PVT._common, depths=(3, 4, 18, 3)),
        "large": dict(_PVT._common, depths=(3, 8, 27, 3)),
        "pola-tiny": dict(_pola, depths=(2, 2, 2, 2)),
        "pola-small": dict(_pola, depths=(3, 4, 6, 3)),
        "pola-medium": dict(_pola, depths=(3, 4, 18, 3)),
        "pola-large": dict(_pola, depths=(3, 8, 27, 3)),
    }

    def __init__(self, arch: str | dict[str, Any] = "tiny", **options: Any) -> None:
        super().__init__(arch, **options)
        self.norm = nn.LayerNorm(self.arch["channels"][-1], eps=self.norm_eps).requires_grad_(False)

    def build_embed(self, stage: int, in_channels: int, channels: int, grid: tuple[int, int]) -> nn.Module:
        return PositionedPatchEmbed(in_channels, channels, 2 if stage else 4, grid)


@MODELS.register_module()
class FLattenPVTv2(_PVT):
    """FLatten-PVTv2-B0 to -B4; with ``attn_type='SSSS'`` it is PVTv2.

    Every stage ends in a norm that its map and the next stage take. The arguments are :class:`TokenPyramid`'s. Paper's drop path:
    0.1 (B0 to B2), 0.3 (B3, B4).
    """

    stage_norm = "stages"
    mlp_conv = 3
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "b0": dict(_PVT._common, depths=(2, 2, 2, 2), channels=(32, 64, 160, 256)),
        "b1": dict(_PVT._common, depths=(2, 2, 2, 2)),
        "b2": dict(_PVT._common, depths=(3, 4, 6, 3)),
        "b3": dict(_PVT._common, depths=(3, 4, 18, 3)),
        "b4": dict(_PVT._common, depths=(3, 8, 27, 3)),
    }

    def __init__(self, arch: str | dict[str, Any] = "b0", **options: Any) -> None:
        super().__init__(arch, **options)
        init_convolutions(self)
        init_stem_biases(self.stem)

    def build_embed(self, stage: int, in_channels: int, channels: int, grid: tuple[int, int]) -> nn.Module:
        kernel, stride, padding = (3, 2, 1) if stage else (7, 4, 3)
        return PatchEmbed(in_channels, channels, kernel, stride, padding, norm=nn.LayerNorm(channels))
