"""Linear attention with ReLU as its feature map, alone and enhanced by a convolution in the block's MLP."""

from typing import ClassVar

from torch import Tensor

from mmlisa import ops
from mmlisa.registry import MODELS

from .projected import ProjectedAttention


@MODELS.register_module()
class ReLULinearAttention(ProjectedAttention):
    """Vanilla linear attention, ReLU as its feature map: focused linear attention with p = 1 and nothing else."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.focused_linear(query, key, value, focusing_factor=1)


@MODELS.register_module()
class EnhancedLinearAttention(ReLULinearAttention):
    """Enhanced linear attention (Cai et al., EfficientViT, first version): the locality is put into the block's MLP.

    Hosts read ``mlp_conv`` and give the MLP a depthwise 3x3 convolution, if it has none of its own (H-ViT³, LeViT).
    """

    mlp_conv: ClassVar[int] = 3
