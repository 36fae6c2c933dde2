"""Efficient attention as a token mixer."""

from torch import Tensor

from mmlisa import ops
from mmlisa.registry import MODELS

from .projected import ProjectedAttention


@MODELS.register_module()
class EfficientAttention(ProjectedAttention):
    """Efficient attention (Shen et al.): see :func:`mmlisa.ops.efficient`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.efficient(query, key, value)
