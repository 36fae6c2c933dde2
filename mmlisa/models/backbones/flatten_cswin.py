"""FLatten-CSwin (Han et al., "FLatten Transformer", Table 15; host: Dong et al., "CSWin Transformer")."""

from typing import Any, ClassVar

from torch import nn

from mmlisa.models.attention import CrossShapedWindowAttention
from mmlisa.models.layers.blocks import LayerNorm
from mmlisa.models.layers.tokens import PatchEmbed
from mmlisa.models.published import Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import FLattenBackbone


@MODELS.register_module()
class FLattenCSwin(FLattenBackbone):
    """FLatten-CSwin-T / -S / -B, with a norm on each map; with ``attn_type='SSSS'`` it is CSwin of FLatten's depths.

    ``S`` attends within stripes ``split_sizes[i]`` tokens wide, globally where that is None. Paper's drop path: 0.2 (T), 0.4
    (S), 0.5 (B).
    """

    default_arch = "tiny"
    at_resolution = ("image_size", "split_sizes")
    _common: ClassVar[dict[str, Any]] = dict(
        attn_type="AASS",
        attention=dict(type="FocusedLinearAttention", lepe_kernel_size=3),
        mlp_ratios=(4, 4, 4, 4),
        split_sizes=(1, 2, 7, None),
        image_size=224,
    )
    _base: ClassVar[dict[str, Any]] = dict(depths=(3, 6, 29, 2), channels=(96, 192, 384, 768), num_heads=(4, 8, 16, 32))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_common, depths=(2, 4, 18, 1), channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
        "small": dict(_common, depths=(2, 4, 32, 2), channels=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
        "base": dict(_common, **_base),
        "base-384": {**_common, **_base, "split_sizes": (1, 2, 12, None), "image_size": 384},
    }

    def build_stem(self) -> nn.Module:
        channels = self.stage_channels[0]
        return PatchEmbed(self.in_channels, channels, 7, 4, 2, norm=nn.LayerNorm(channels))

    def build_own_attention(self, stage: int, index: int, grid: tuple[int, ...]) -> nn.Module:
        channels, num_heads = self.stage_channels[stage], self.arch["num_heads"][stage]
        return CrossShapedWindowAttention(channels, num_heads, grid=grid, split_size=self.arch["split_sizes"][stage])

    def build_norm(self, stage: int) -> nn.Module:
        return LayerNorm(self.stage_channels[stage])

    # Names in timm and published weights.
    timm = (
        TimmNames("flatten_cswin_{}", {"t": "tiny", "s": "small", "b": "base"}, crop_mode="squash"),
        TimmNames("flatten_cswin_{}_384", {"b": "base-384"}, crop_pct=384 / 438, crop_mode="squash"),
    )
    published: ClassVar[dict[Network, Rules]] = {
        Network("CSwin", ("stage1_conv_embed.0.weight", "merge1.conv.weight")): (
            (r"^stage1_conv_embed\.0\.", "stem.proj."),
            (r"^stage1_conv_embed\.2\.", "stem.norm."),
            (r"^merge(\d)\.conv\.", r"stages.\1.downsample.proj."),
            (r"^merge(\d)\.norm\.", r"stages.\1.downsample.norm."),
            (r"^stage(\d)\.(\d+)\.(qkv|proj)\.", r"stages.{\1-1}.blocks.\2.attn.\3."),
            (r"^stage(\d)\.(\d+)\.attns\.(\d)\.get_v\.", r"stages.{\1-1}.blocks.\2.attn.lepe.\3."),
            (r"^stage(\d)\.(\d+)\.attns\.0\.", r"stages.{\1-1}.blocks.\2.attn."),
            (r"^stage(\d)\.", r"stages.{\1-1}.blocks."),
            (r"^norm\.", "norm3."),
        )
    }
