"""FLatten-Swin (Han et al., "FLatten Transformer", Table 14; host: Liu et al., "Swin Transformer")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.models.attention import ShiftedWindowAttention
from mmlisa.models.layers.blocks import LayerNorm
from mmlisa.models.layers.tokens import PatchEmbed
from mmlisa.models.published import OPENMMLAB_MLP, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import FLattenBackbone


class PatchMerging(nn.Module):
    """2x2 neighbours side by side, LayerNorm, Linear: map ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * in_channels)
        self.reduction = nn.Linear(4 * in_channels, channels, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        height, width = x.shape[2:]
        x = F.pad(x, (0, width % 2, 0, height % 2)).permute(0, 2, 3, 1)
        top, bottom = x[:, 0::2], x[:, 1::2]
        # Swin's own order: down before right.
        x = torch.cat([top[:, :, 0::2], bottom[:, :, 0::2], top[:, :, 1::2], bottom[:, :, 1::2]], dim=3)
        return self.reduction(self.norm(x.flatten(1, 2))), tuple(x.shape[1:3])


def merge_by_slicing(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Reorder the channels of OpenMMLab's patch merging, ``[..., 4C]``.

    ``nn.Unfold`` has the channel first, then the pixel by rows; the authors' slices have the pixel first, by columns.
    """

    def reorder(tensor: Tensor) -> Tensor:
        return tensor.unflatten(-1, (-1, 2, 2)).permute(*range(tensor.ndim - 1), -1, -2, -3).flatten(-3)

    return {name: reorder(tensor) if ".downsample." in name else tensor for name, tensor in state.items()}


_RULES: Rules = (
    (r"relative_position_index$|attn_mask$", None),  # buffers, rebuilt
    (r"^patch_embed\.", "stem."),
    (r"^layers\.(\d+)\.blocks\.", r"stages.\1.blocks."),
    (r"^norm\.", "norm3."),  # of the last map; the others' norms are new
)
# timm puts Swin's merging at the head of a stage, the official code at the end of the one before.
_TIMM_RULES: Rules = ((r"^layers\.(\d+)\.downsample\.", r"stages.\1.downsample."), *_RULES)
_OFFICIAL_RULES: Rules = ((r"^layers\.(\d+)\.downsample\.", r"stages.{\1+1}.downsample."), *_RULES)


@MODELS.register_module()
class FLattenSwin(FLattenBackbone):
    """FLatten-Swin-T / -S / -B, with a norm on each map; with ``attn_type='SSSS'`` it is Swin. Archs ``pola-*`` are PolaFormer's.

    In the ``A`` stages (the paper's ``L``), the paper's window of 56 covers the whole map at 224 pixels. Here these stages attend
    globally at any size; ``attention=dict(window=56, shift=True)`` restores the windows, shifted in every second block. Paper's
    drop path: 0.2 (T), 0.3 (S), 0.5 (B).
    """

    default_arch = "tiny"
    at_resolution = ("image_size", "window_size")
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

    def build_stem(self) -> nn.Module:
        channels = self.stage_channels[0]
        return PatchEmbed(self.in_channels, channels, 4, 4, norm=nn.LayerNorm(channels))

    def build_downsample(self, stage: int) -> nn.Module | None:
        return PatchMerging(*self.stage_channels[stage - 1 : stage + 1]) if stage else None

    def build_own_attention(self, stage: int, index: int, grid: tuple[int, ...]) -> nn.Module:
        options = dict(window_size=self.arch["window_size"], shift=index % 2 == 1)
        return ShiftedWindowAttention(self.stage_channels[stage], self.arch["num_heads"][stage], grid=grid, **options)

    def build_norm(self, stage: int) -> nn.Module:
        return LayerNorm(self.stage_channels[stage])

    # Names in timm and published weights.
    _tsb: ClassVar[dict[str, str]] = {"t": "tiny", "s": "small", "b": "base"}
    timm = (
        TimmNames("flatten_swin_{}", _tsb, crop_mode="squash"),
        TimmNames("flatten_swin_{}_384", {"b": "base-384"}, crop_pct=1.0, crop_mode="squash"),
        TimmNames("pola_swin_{}", {letter: f"pola-{arch}" for letter, arch in _tsb.items()}),
        TimmNames("pola_swin_{}_384", {"b": "pola-base-384"}, crop_pct=1.0, crop_mode="squash"),
    )
    published: ClassVar[dict[Network, Rules]] = {
        Network(
            "PolaFormer-Swin", ("patch_embed.proj.weight", "layers.0.blocks.0.attn.qkvg.weight"), is_ours=True
        ): _OFFICIAL_RULES,
        Network(
            "Swin",
            ("patch_embed.proj.weight", "layers.0.blocks.0.norm1.weight", "layers.3.downsample.norm.weight"),
            timm=("swin_tiny", "swin_small", "swin_base"),
        ): _TIMM_RULES,
        Network(
            "Swin, official names",
            ("patch_embed.proj.weight", "layers.0.blocks.0.norm1.weight", "layers.0.downsample.norm.weight"),
        ): _OFFICIAL_RULES,
        Network(
            "Swin, OpenMMLab's names",
            ("patch_embed.projection.weight", "stages.0.blocks.0.attn.w_msa.qkv.weight"),
            prepare=merge_by_slicing,
            rules=(
                (r"^patch_embed\.projection\.", "patch_embed.proj."),
                (r"^stages\.", "layers."),
                (r"\.w_msa\.", "."),
                *OPENMMLAB_MLP,
            ),
        ): _OFFICIAL_RULES,
    }
