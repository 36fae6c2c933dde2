"""Plain vision transformers (Touvron et al., "DeiT") around any attention operator.

Castling-DeiT and Castling-ViT are of You et al., "Castling-ViT", Tables 2 and 4; FLatten-DeiT is of Han et al., "FLatten
Transformer", Table 9; InteractiveViT is of Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Tables 2
to 4.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import PositionedPatchEmbed
from mmlisa.models.published import DEIT, DEIT_RULES, Network, Rules, TimmNames
from mmlisa.registry import MODELS

from .base import Backbone, StageSize


class PlainViT(Backbone):
    """Base of hosts with blocks of one width at one stride; each block is a stage, and its map has the network's last norm.

    Args:
        out_type: ``'featmap'``, or for classifiers ``'cls_token'``: tokens ``[B, C]`` in the place of maps.
        out_indices: blocks whose outputs are returned; the last by default, None for all.
    """

    num_extra_tokens = 1  # the class token
    eps: ClassVar[float] = 1e-6  # of the last norm

    def __init__(
        self,
        arch: str | dict[str, Any] | None = None,
        *,
        out_type: str = "featmap",
        out_indices: int | Sequence[int] | None = (-1,),
        **options: Any,
    ) -> None:
        super().__init__(arch, out_indices=out_indices, **options)
        self.out_type = out_type
        out_types = ("featmap", "cls_token")[: 1 + self.num_extra_tokens]
        if out_type not in out_types:
            raise UserError(f"out_type={out_type!r}; it must be one of {out_types}")

    @classmethod
    def stage_sizes(cls, arch: dict[str, Any]) -> list[StageSize]:
        return [StageSize(arch["channels"], arch.get("patch_size", 16), 1)] * arch["depth"]

    def build_stem(self) -> nn.Module:
        channels, side, grid = self.arch["channels"], self.stage_strides[0], self.stage_grid(0)
        options = dict(norm=nn.Identity(), class_token=self.num_extra_tokens)
        return PositionedPatchEmbed(self.in_channels, channels, side, grid, **options)

    def finish(self) -> None:
        super().finish()
        self.norm = nn.LayerNorm(self.arch["channels"], eps=self.eps)

    def to_output(self, x: Tensor, grid: tuple[int, ...]) -> Tensor:
        return x[:, 0] if self.out_type == "cls_token" else super().to_output(x[:, self.num_extra_tokens :], grid)

    def norm_output(self, x: Tensor, stage: int) -> Tensor:
        return self.norm(x)

    def stage_modules(self, stage: int) -> list[nn.Module]:
        last = [self.norm] if stage == self.num_stages else []
        return [*super().stage_modules(stage), *last]

    # Names in timm and published weights.
    feature_indices = (-3, -2, -1)  # as timm's ViTs
    published: ClassVar[dict[Network, Rules]] = dict.fromkeys(DEIT, DEIT_RULES)


@MODELS.register_module()
class CastlingDeiT(PlainViT):
    """DeiT with linear-angular attention and depthwise 5x5 convolutions in its MLPs, which skip the class token.

    The query is added to the attended tokens ("residual connections", the paper's appendix B).
    ``arch=dict(base="tiny", patch_size=8)``, 4 and 2 are Table 9's.
    """

    default_arch = "tiny"
    _castling: ClassVar[dict[str, Any]] = dict(
        depth=12,
        mlp_ratio=4,
        mlp_conv=5,
        patch_size=16,
        attention=dict(type="LinearAngularAttention", residual=True, aux=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(_castling, channels=192, num_heads=3),
        "base": dict(_castling, channels=768, num_heads=12),
    }
    timm = (TimmNames("castling_deit_{}", {"t": "tiny", "b": "base"}),)


@MODELS.register_module()
class CastlingViT(PlainViT):
    """ViT with linear-angular attention without DConv, and depthwise 5x5 convolutions in its MLPs."""

    default_arch = "base"
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "base": dict(
            depth=12,
            channels=768,
            num_heads=12,
            mlp_ratio=4,
            mlp_conv=5,
            attention=dict(type="LinearAngularAttention", residual=True, conv_size=None, aux=True),
        )
    }
    timm = (TimmNames("castling_vit_{}", {"b": "base"}),)


@MODELS.register_module()
class FLattenDeiT(PlainViT):
    """FLatten-DeiT-T: focused linear attention at stride 16, with a class token. Paper's drop path: 0.1."""

    default_arch = "tiny"
    no_decay = ("stem.position", "cls_token")
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(depth=12, channels=192, num_heads=3, mlp_ratio=4, attention=dict(type="FocusedLinearAttention"))
    }
    timm = (TimmNames("flatten_deit_{}", {"t": "tiny"}, crop_mode="squash"),)
    classifier: ClassVar[dict[str, Any]] = dict(out_type="cls_token")


@MODELS.register_module()
class InteractiveViT(PlainViT):
    """ViT-T and ViT-S without a class token, patches of 16 or 8 pixels. Paper's drop path: 0.1.

    The projections have biases, as in DeiT, whose recipe the tables follow.
    """

    default_arch = "tiny-16"
    num_extra_tokens = 0
    no_decay = ("stem.position",)
    _vit: ClassVar[dict[str, Any]] = dict(
        depth=12,
        mlp_ratio=4,
        attention=dict(type="InteractiveAttention", landmarks=64, qkv_bias=True, proj_bias=True),
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny-16": dict(_vit, channels=192, num_heads=3, patch_size=16),
        "tiny-8": dict(_vit, channels=192, num_heads=3, patch_size=8),
        "small-16": dict(_vit, channels=384, num_heads=6, patch_size=16),
        "small-8": dict(_vit, channels=384, num_heads=6, patch_size=8),
    }
    _names: ClassVar[dict[str, str]] = {"t16": "tiny-16", "s16": "small-16", "t8": "tiny-8", "s8": "small-8"}
    timm = (TimmNames("vit_{}_interactive", _names),)
