"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .builder import build_attention
from .convolutional import ConvolutionalAttention, DepthwiseConv, InceptionMixer
from .focused_linear import FocusedLinearAttention
from .global_filter import GlobalFilter
from .interactive import InteractiveAttention
from .kernels import (
    CosineAttention,
    MeanCenteredAttention,
    PooledSoftmaxAttention,
    ReLUExpAttention,
    ReLUSoftmaxAttention,
)
from .levit import LeViTAttention, OffsetBias
from .linear import EfficientAttention, EnhancedLinearAttention, HydraAttention, ReLULinearAttention
from .linear_angular import LinearAngularAttention, castling_operators, drop_aux
from .lisa import LiSA
from .projected import HeadPool, ProjectedAttention
from .relational import LambdaConvolution, RelationalSelfAttention
from .softmax import SoftmaxAttention
from .spatial_reduction import SpatialReductionAttention
from .structure_aware import StructureAwareAttention
from .window import CrossShapedWindowAttention, ShiftedWindowAttention

__all__ = [
    "ConvolutionalAttention",
    "CosineAttention",
    "CrossShapedWindowAttention",
    "DepthwiseConv",
    "EfficientAttention",
    "EnhancedLinearAttention",
    "FocusedLinearAttention",
    "GlobalFilter",
    "HeadPool",
    "HydraAttention",
    "InceptionMixer",
    "InteractiveAttention",
    "LambdaConvolution",
    "LeViTAttention",
    "LiSA",
    "LinearAngularAttention",
    "MeanCenteredAttention",
    "OffsetBias",
    "PooledSoftmaxAttention",
    "ProjectedAttention",
    "ReLUExpAttention",
    "ReLULinearAttention",
    "ReLUSoftmaxAttention",
    "RelationalSelfAttention",
    "ShiftedWindowAttention",
    "SoftmaxAttention",
    "SpatialReductionAttention",
    "StructureAwareAttention",
    "build_attention",
    "castling_operators",
    "drop_aux",
]
