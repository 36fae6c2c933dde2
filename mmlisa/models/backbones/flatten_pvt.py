"""FLatten-PVT and FLatten-PVTv2 (Han et al., "FLatten Transformer", Tables 10-13; hosts: Wang et al., PVT and PVTv2)."""

from typing import Any, ClassVar

from torch import nn

from mmlisa.models.attention import SpatialReductionAttention
from mmlisa.models.layers.blocks import LayerNorm
from mmlisa.models.layers.grids import PositionedPatchEmbed
from mmlisa.models.layers.tokens import PatchEmbed
from mmlisa.models.published import OPENMMLAB_PVT_V2, PVT_RULES, PVT_V2, Network, Rules, TimmNames, split_projections
from mmlisa.registry import MODELS

from .base import FLattenBackbone


class _PVT(FLattenBackbone):
    """Base of both versions, which differ in their embeddings, norms and convolutions; ``S`` is spatial-reduction attention."""

    eps = 1e-6
    _common: ClassVar[dict[str, Any]] = dict(
        attn_type="AAAA",
        attention=dict(type="FocusedLinearAttention"),
        channels=(64, 128, 320, 512),
        num_heads=(1, 2, 5, 8),
        mlp_ratios=(8, 8, 4, 4),
        sr_ratios=(8, 4, 2, 1),
        image_size=224,
    )

    def build_own_attention(self, stage: int, index: int, grid: tuple[int, ...]) -> nn.Module:
        channels, num_heads = self.stage_channels[stage], self.arch["num_heads"][stage]
        return SpatialReductionAttention(channels, num_heads, grid=grid, sr_ratio=self.arch["sr_ratios"][stage])


@MODELS.register_module()
class FLattenPVT(_PVT):
    """FLatten-PVT-T / -S / -M / -L; with ``attn_type='SSSS'`` it is PVT, without its class token.

    The maps are not normalised, as in the official classifier. The official code has a last norm that is part of its checkpoints
    and parameter counts but is never applied; here it is frozen. Paper's drop path: 0.1 (T, S), 0.3 (M, L).
    """

    default_arch = "tiny"
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

    def build_stem(self) -> nn.Module:
        return self._build_embed(0, self.in_channels, 4)

    def build_downsample(self, stage: int) -> nn.Module | None:
        return self._build_embed(stage, self.stage_channels[stage - 1], 2) if stage else None

    def _build_embed(self, stage: int, in_channels: int, side: int) -> nn.Module:
        channels = self.stage_channels[stage]
        return PositionedPatchEmbed(in_channels, channels, side, self.stage_grid(stage), norm=nn.LayerNorm(channels))

    def finish(self) -> None:
        super().finish()
        self.norm = nn.LayerNorm(self.stage_channels[-1], eps=1e-6).requires_grad_(False)

    # Names in timm and published weights.
    _tsml: ClassVar[dict[str, str]] = {"t": "tiny", "s": "small", "m": "medium", "l": "large"}
    timm = (
        TimmNames("flatten_pvt_{}", _tsml, crop_mode="squash"),
        TimmNames("pola_pvt_{}", {letter: f"pola-{arch}" for letter, arch in _tsml.items()}),
    )
    published: ClassVar[dict[Network, Rules]] = {
        Network("PolaFormer-PVT", ("pos_embed1", "block1.0.attn.qg.weight"), is_ours=True): PVT_RULES,
        Network("PVT", ("patch_embed1.proj.weight", "pos_embed1")): PVT_RULES,
        Network(
            "PVT, OpenMMLab's names",
            ("layers.0.0.projection.weight", "layers.0.1.0.pos_embed"),
            prepare=split_projections,
            # The list of blocks begins with the position table.
            rules=(*OPENMMLAB_PVT_V2, (r"^block(\d)\.(\d+)\.", r"block\1.{\2-1}.")),
        ): PVT_RULES,
    }


@MODELS.register_module()
class FLattenPVTv2(_PVT):
    """FLatten-PVTv2-B0 to -B4; with ``attn_type='SSSS'`` it is PVTv2.

    Every stage ends in a norm that its map and the next stage take. Paper's drop path: 0.1 (B0 to B2), 0.3 (B3, B4).
    """

    default_arch = "b0"
    convolutions = "fan-out"
    mlp_conv = 3
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "b0": dict(_PVT._common, depths=(2, 2, 2, 2), channels=(32, 64, 160, 256)),
        "b1": dict(_PVT._common, depths=(2, 2, 2, 2)),
        "b2": dict(_PVT._common, depths=(3, 4, 6, 3)),
        "b3": dict(_PVT._common, depths=(3, 4, 18, 3)),
        "b4": dict(_PVT._common, depths=(3, 8, 27, 3)),
    }

    def build_stem(self) -> nn.Module:
        channels = self.stage_channels[0]
        return PatchEmbed(self.in_channels, channels, 7, 4, 3, norm=nn.LayerNorm(channels))

    def build_stage_norm(self, stage: int) -> nn.Module:
        return LayerNorm(self.stage_channels[stage], eps=1e-6)

    # Names in timm and published weights.
    timm = (TimmNames("flatten_pvtv2_{}", {arch: arch for arch in arch_settings}, crop_mode="squash"),)
    published: ClassVar[dict[Network, Rules]] = dict.fromkeys(PVT_V2, PVT_RULES)
