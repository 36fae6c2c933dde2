"""FLatten-DeiT (Han et al., "FLatten Transformer", Table 9; host: Touvron et al., "DeiT")."""

from typing import Any, ClassVar

from mmlisa.registry import MODELS

from .base import TimmNames
from .plain_vit import PlainViT


@MODELS.register_module()
class FLattenDeiT(PlainViT):
    """FLatten-DeiT-T: 12 blocks of focused linear attention at stride 16, with a class token; see :class:`PlainViT`.

    The paper's ``drop_path_rate`` is 0.1.
    """

    default_arch = "tiny"
    no_decay = ("stem.position", "cls_token")
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(depth=12, channels=192, num_heads=3, mlp_ratio=4, attention=dict(type="FocusedLinearAttention"))
    }
    timm = (TimmNames("flatten_deit_{}", {"t": "tiny"}, pool="token", crop_mode="squash"),)
    classifier: ClassVar[dict[str, Any]] = dict(out_type="cls_token")
