"""Castling-DeiT and Castling-ViT (You et al., "Castling-ViT", Tables 2 and 4)."""

from typing import Any, ClassVar

from mmlisa.registry import MODELS

from .base import TimmNames
from .plain_vit import PlainViT


@MODELS.register_module()
class CastlingDeiT(PlainViT):
    """DeiT with linear-angular attention and depthwise 5x5 convolutions in its MLPs, which skip the class token.

    The query is added to the attended tokens ("residual connections", the paper's appendix B). See :class:`PlainViT`.
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
    timm = (TimmNames("castling_deit_{}", {"t": "tiny", "b": "base"}, pool="token"),)


@MODELS.register_module()
class CastlingViT(PlainViT):
    """ViT with linear-angular attention without DConv, and depthwise 5x5 convolutions in its MLPs; see :class:`PlainViT`."""

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
    timm = (TimmNames("castling_vit_{}", {"b": "base"}, pool="token"),)
