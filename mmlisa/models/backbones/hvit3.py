"""ViT³ and H-ViT³ (Han et al., "ViT³: Unlocking Test-Time Training in Vision")."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import LayerNorm, Mlp, stochastic_depth
from mmlisa.models.layers.tokens import PatchEmbed, ShortcutTokenConv, TokenConv
from mmlisa.models.published import CONV_PYRAMID_RULES, CONV_STEM, DEIT_RULES, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .mila import MILA
from .plain_vit import PlainViT


class ShortcutConvMlp(Mlp):
    """An MLP with a depthwise convolution beside a shortcut, and GELU before and after: ``[B, N, C] -> [B, N, C]``."""

    order = ("fc1", "act", "dwconv", "act", "fc2")

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__(channels, hidden)
        self.dwconv = ShortcutTokenConv(hidden, 3)


class ViT3Block(nn.Module):
    """A convolution for positions, attention and MLP, each a residual branch: ``[B, N, C] -> [B, N, C]``."""

    def __init__(self, channels: int, attention: nn.Module, mlp: nn.Module, *, drop_path: float, eps: float) -> None:
        super().__init__()
        self.cpe = TokenConv(channels, 3)
        self.norm1 = LayerNorm(channels, eps=eps)
        self.attn = attention
        self.norm2 = LayerNorm(channels, eps=eps)
        self.mlp = mlp
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x + self.cpe(x, grid)
        x = x + self.drop_path(self.attn(self.norm1(x), grid))
        return x + self.drop_path(self.mlp(self.norm2(x), grid))


@MODELS.register_module()
class HViT3(MILA):
    """H-ViT³-T / -S / -B: ViT³'s blocks on MILA's layout. Nothing depends on the pretraining resolution.

    Paper's drop path on ImageNet: 0.2 (T), 0.4 (S), 0.6 (B).
    """

    stem_shortcut = False
    last_norm = nn.BatchNorm1d
    _common: ClassVar[dict[str, Any]] = dict(mlp_ratios=(4, 4, 4, 4), attention=dict(type="TTTAttention", rotary=True))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_common, depths=(1, 3, 9, 4), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "small": dict(_common, depths=(2, 6, 18, 8), channels=(64, 128, 320, 512), num_heads=(2, 4, 10, 16)),
        "base": dict(_common, depths=(2, 6, 18, 8), channels=(96, 192, 448, 640), num_heads=(3, 6, 14, 20)),
    }

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        channels = self.stage_channels[stage]
        attention = build_attention(self.attention, channels, self.arch["num_heads"][stage], grid)
        mlp = ShortcutConvMlp(channels, int(channels * self.arch["mlp_ratios"][stage]))
        return ViT3Block(channels, attention, mlp, drop_path=drop_path, eps=1e-5)

    # Names in timm and published weights.
    timm = (TimmNames("h_vit3_{}", {"t": "tiny", "s": "small", "b": "base"}),)
    published: ClassVar[dict[Network, Rules]] = {
        Network("H-ViT³", ("patch_embed.conv.0.conv.weight", "layers.0.blocks.0.attn.w3"), is_ours=True): (
            *((rf"^patch_embed\.conv\.{i}\.", f"stem.{new}.") for i, new in enumerate(CONV_STEM)),
            (r"\.mlp\.dwc\.", ".mlp.dwconv."),
            *CONV_PYRAMID_RULES,
        )
    }


@MODELS.register_module()
class ViT3(PlainViT):
    """ViT³-T / -S / -B: 12 blocks at stride 16, without a class token and position embeddings.

    Paper's drop path on ImageNet: 0 (T), 0.1 (S), 0.4 (B).
    """

    default_arch = "tiny"
    num_extra_tokens = 0
    _blocks: ClassVar[dict[str, Any]] = dict(depth=12, mlp_ratio=4)
    _common: ClassVar[dict[str, Any]] = dict(_blocks, attention=dict(type="TTTAttention"))
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_common, channels=192, num_heads=6),
        "small": dict(_common, channels=384, num_heads=6),
        "base": dict(_common, channels=768, num_heads=12),
    }

    def build_stem(self) -> nn.Module:
        side = self.stage_strides[0]
        return PatchEmbed(self.in_channels, self.arch["channels"], side, side, norm=nn.Identity())

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        channels = self.arch["channels"]
        attention = build_attention(self.attention, channels, self.arch["num_heads"], grid)
        mlp = Mlp(channels, int(channels * self.arch["mlp_ratio"]), getattr(attention, "mlp_conv", None))
        return ViT3Block(channels, attention, mlp, drop_path=drop_path, eps=1e-6)

    # Names in timm and published weights.
    timm = (TimmNames("vit3_{}", {"t": "tiny", "s": "small", "b": "base"}),)
    published: ClassVar[dict[Network, Rules]] = {
        Network("ViT³", ("patch_embed.proj.weight", "blocks.0.attn.w3"), is_ours=True): DEIT_RULES
    }
