"""FLatten-CSwin (Han et al., "FLatten Transformer", Table 15; host: Dong et al., "CSWin Transformer")."""

from typing import Any, ClassVar

from torch import nn

from mmlisa.models.layers import PatchEmbed
from mmlisa.registry import MODELS

from .pyramid import TokenPyramid


@MODELS.register_module()
class FLattenCSwin(TokenPyramid):
    """FLatten-CSwin-T / -S / -B; with ``attn_type='SSSS'`` it is CSwin of FLatten's depths.

    ``S`` attends within stripes ``split_sizes[i]`` tokens wide, globally where that is None. The arguments are
    :class:`TokenPyramid`'s. Paper's drop path: 0.2 (T), 0.4 (S), 0.5 (B).
    """

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

    def __init__(self, arch: str | dict[str, Any] = "tiny", **options: Any) -> None:
        super().__init__(arch, **options)

    def build_embed(self, stage: int, in_channels: int, channels: int, grid: tuple[int, int]) -> nn.Module:
        kernel, stride, padding = (3, 2, 1) if stage else (7, 4, 2)
        return PatchEmbed(in_channels, channels, kernel, stride, padding, norm=nn.LayerNorm(channels))

    def host_attention(self, stage: int, block: int) -> dict[str, Any]:
        return dict(type="CrossShapedWindowAttention", split_size=self.arch["split_sizes"][stage])
