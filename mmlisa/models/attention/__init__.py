"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config.

Names are imported at their first use.
"""

from mmlisa.lazy import names_at_first_use

# The registered operators, by file.
_OPERATORS = {
    "agent": "AgentAttention",
    "cells": "CellAttention",
    "cross_shaped_window": "CrossShapedWindowAttention",
    "focused_linear": "FocusedLinearAttention",
    "inline": "InLineAttention",
    "interactive": "InteractiveAttention",
    "levit": "LeViTAttention",
    "linear": (
        "CosineAttention EfficientAttention EnhancedLinearAttention HydraAttention LinearAngularAttention "
        "MeanCenteredAttention ReLUExpAttention ReLULinearAttention ReLUSoftmaxAttention"
    ),
    "lisa": "LiSA",
    "mixers": "AveragePooling DepthwiseConv GlobalFilter InceptionMixer",
    "pairwise": "LambdaConvolution RelationalSelfAttention StructureAwareAttention",
    "polarity_aware": "PolarityAwareAttention",
    "rotated": "MALAAttention MILAAttention RALAAttention",
    "shifted_window": "ShiftedWindowAttention",
    "softmax": "ConvolutionalAttention PooledSoftmaxAttention SoftmaxAttention",
    "spatial_reduction": "SpatialReductionAttention",
    "ttt": "TTTAttention",
}
_OTHERS = {
    "base": "HeadedAttention build_attention check_tokens join_heads split_heads with_rotary",
    "castling": "CastlingAttention HeadPool castling_operators drop_aux",
}
OPERATORS = sorted(name for names in _OPERATORS.values() for name in names.split())
__all__, __getattr__, __dir__ = names_at_first_use(__name__, {**_OPERATORS, **_OTHERS})
