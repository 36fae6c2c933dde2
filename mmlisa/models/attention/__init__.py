"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config.

Names are imported at their first use.
"""

from mmlisa.lazy import names_at_first_use

# The registered operators, by file.
_OPERATORS = {
    "agent": ("AgentAttention",),
    "average_pooling": ("AveragePooling",),
    "convolutional": ("ConvolutionalAttention",),
    "cross_shaped_window": ("CrossShapedWindowAttention",),
    "depthwise_conv": ("DepthwiseConv",),
    "focused_linear": ("FocusedLinearAttention",),
    "gated_linear": ("MALAAttention", "RALAAttention"),
    "global_filter": ("GlobalFilter",),
    "inception": ("InceptionMixer",),
    "inline": ("InLineAttention",),
    "interactive": ("InteractiveAttention",),
    "lambda_convolution": ("LambdaConvolution",),
    "levit": ("LeViTAttention",),
    "linear_angular": ("LinearAngularAttention",),
    "linear_kernels": (
        "CosineAttention",
        "EfficientAttention",
        "EnhancedLinearAttention",
        "HydraAttention",
        "MeanCenteredAttention",
        "ReLUExpAttention",
        "ReLULinearAttention",
        "ReLUSoftmaxAttention",
    ),
    "lisa": ("LiSA",),
    "mila": ("MILAAttention",),
    "polarity_aware": ("PolarityAwareAttention",),
    "relational": ("RelationalSelfAttention",),
    "shifted_window": ("ShiftedWindowAttention",),
    "softmax": ("PooledSoftmaxAttention", "SoftmaxAttention"),
    "spatial_reduction": ("SpatialReductionAttention",),
    "structure_aware": ("StructureAwareAttention",),
    "ttt": ("TTTAttention",),
}
_OTHERS = {
    "base": ("HeadedAttention", "build_attention", "check_tokens", "join_heads", "split_heads"),
    "castling": ("CastlingAttention", "HeadPool", "castling_operators", "drop_aux"),
}
OPERATORS = sorted(name for names in _OPERATORS.values() for name in names)
__all__, __getattr__, __dir__ = names_at_first_use(__name__, {**_OPERATORS, **_OTHERS})
