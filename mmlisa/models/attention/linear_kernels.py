"""The linear attentions that Castling-ViT compares itself with (You et al., Table 5)."""

from torch import Tensor

from mmlisa import ops
from mmlisa.registry import MODELS

from .projected import ProjectedAttention


@MODELS.register_module()
class CosineAttention(ProjectedAttention):
    """Table 5, "Cosine": :func:`mmlisa.ops.cosine_attention`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.cosine_attention(query, key, value)


@MODELS.register_module()
class MeanCenteredAttention(ProjectedAttention):
    """Table 5, "MC": :func:`mmlisa.ops.mean_centered_attention`.

    Args:
        axis: over which the mean is taken, ``'tokens'`` or ``'channels'``.
        **options: see :class:`ProjectedAttention`.
    """

    full_precision = True

    def __init__(self, channels: int, num_heads: int, *, axis: str = "tokens", **options) -> None:
        super().__init__(channels, num_heads, **options)
        self.axis = axis

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.mean_centered_attention(query, key, value, self.axis)


@MODELS.register_module()
class ReLUSoftmaxAttention(ProjectedAttention):
    """Table 5, "ReLU-S": :func:`mmlisa.ops.relu_softmax_attention`.

    Args:
        average: divide the sum over the N tokens by N, as our configs of Table 5 do; the paper does not (its appendix).
        **options: see :class:`ProjectedAttention`.
    """

    full_precision = True

    def __init__(self, channels: int, num_heads: int, *, average: bool = True, **options) -> None:
        super().__init__(channels, num_heads, **options)
        self.average = average

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.relu_softmax_attention(query, key, value, self.average)


@MODELS.register_module()
class ReLUExpAttention(ProjectedAttention):
    """Table 5, "ReLU-E": :func:`mmlisa.ops.relu_exp_attention`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.relu_exp_attention(query, key, value)
