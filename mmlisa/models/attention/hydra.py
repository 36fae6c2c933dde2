"""Hydra attention as a token mixer."""

from torch import Tensor

from mmlisa import ops
from mmlisa.registry import MODELS

from .projected import ProjectedAttention


@MODELS.register_module()
class HydraAttention(ProjectedAttention):
    """Hydra attention (Bolya et al.): see :func:`mmlisa.ops.hydra`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.hydra(query, key, value)
