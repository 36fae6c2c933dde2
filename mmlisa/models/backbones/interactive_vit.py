"""The plain ViTs of Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity", Tables 2 to 4."""

from typing import Any, ClassVar

from mmlisa.registry import MODELS

from .base import TimmNames
from .plain_vit import PlainViT


@MODELS.register_module()
class InteractiveViT(PlainViT):
    """ViT-T and ViT-S without a class token, patches of 16 or 8 pixels: a host for every operator of the registry.

    The arguments are :class:`PlainViT`'s. Drop path in the paper: 0.1.
    """

    default_arch = "tiny-16"
    no_decay = ("stem.position",)
    # Projections with biases, as in DeiT, whose recipe the tables follow.
    _vit: ClassVar[dict[str, Any]] = dict(
        depth=12,
        mlp_ratio=4,
        class_token=False,
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
