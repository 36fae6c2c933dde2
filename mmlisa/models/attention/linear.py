"""Linear attentions of one function each: linear-angular, Hydra, efficient, ReLU, and those of Castling-ViT's Table 5."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from mmlisa.ops import (
    cosine_attention,
    efficient,
    focused_linear,
    hydra,
    linear_angular,
    mean_centered_attention,
    normalize_length,
    relu_exp_attention,
    relu_softmax_attention,
)
from mmlisa.ops.context import out_of_fp16
from mmlisa.registry import MODELS

from .castling import CastlingAttention


@MODELS.register_module()
class HydraAttention(CastlingAttention):
    """Hydra attention (Bolya et al.): see :func:`mmlisa.ops.hydra`."""

    function = staticmethod(hydra)


@MODELS.register_module()
class EfficientAttention(CastlingAttention):
    """Efficient attention (Shen et al.): see :func:`mmlisa.ops.efficient`."""

    function = staticmethod(efficient)


@MODELS.register_module()
class ReLULinearAttention(CastlingAttention):
    """Vanilla linear attention, ReLU as its feature map: focused linear attention with p = 1 and nothing else."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return focused_linear(query, key, value, focusing_factor=1)


@MODELS.register_module()
class EnhancedLinearAttention(ReLULinearAttention):
    """Enhanced linear attention (Cai et al., EfficientViT, first version): the locality is put into the block's MLP.

    Backbones read ``mlp_conv`` and give the MLP a depthwise 3x3 convolution, if it has none of its own (H-ViT³, LeViT).
    """

    mlp_conv: ClassVar[int] = 3


@MODELS.register_module()
class CosineAttention(CastlingAttention):
    """Table 5, "Cosine": :func:`mmlisa.ops.cosine_attention`."""

    function = staticmethod(cosine_attention)


@MODELS.register_module()
class MeanCenteredAttention(CastlingAttention):
    """Table 5, "MC": :func:`mmlisa.ops.mean_centered_attention`."""

    full_precision = True
    function = staticmethod(mean_centered_attention)


@MODELS.register_module()
class ReLUSoftmaxAttention(CastlingAttention):
    """Table 5, "ReLU-S": :func:`mmlisa.ops.relu_softmax_attention`.

    Args:
        average: divide the sum over the N tokens by N, as our configs of Table 5 do; the paper does not (its appendix).
    """

    full_precision = True

    def __init__(self, channels: int, num_heads: int, *, average: bool = True, **options) -> None:
        super().__init__(channels, num_heads, **options)
        self.average = average

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return relu_softmax_attention(query, key, value, self.average)


@MODELS.register_module()
class ReLUExpAttention(CastlingAttention):
    """Table 5, "ReLU-E": :func:`mmlisa.ops.relu_exp_attention`."""

    function = staticmethod(relu_exp_attention)


@MODELS.register_module()
class LinearAngularAttention(CastlingAttention):
    """``proj(norm(v / 2 + q̂ (k̂ᵀ v) / π + aux) + DConv(v))`` (You et al., "Castling-ViT", Eqs. 9-10), norm: L2 over a head."""

    def __init__(self, channels: int, num_heads: int, *, conv_size: int | None = 9, **options) -> None:
        super().__init__(channels, num_heads, conv_size=conv_size, **options)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return linear_angular(query, key, out_of_fp16(value))  # in fp16 the sum would overflow before it is normalised

    def normalise(self, y: Tensor) -> Tensor:
        return normalize_length(y)
