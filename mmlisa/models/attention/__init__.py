"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .builder import build_attention
from .convolutional import ConvolutionalAttention, DepthwiseConv, InceptionMixer
from .focused_linear import FocusedLinearAttention
from .global_filter import GlobalFilter
from .interactive import InteractiveAttention
from .linear import EfficientAttention, EnhancedLinearAttention, HydraAttention, ReLULinearAttention
from .lisa import LiSA
from .relational import LambdaConvolution, RelationalSelfAttention
from .softmax import SoftmaxAttention
from .spatial_reduction import SpatialReductionAttention
from .structure_aware import StructureAwareAttention
from .window import CrossShapedWindowAttention, ShiftedWindowAttention

__all__ = [
    "ConvolutionalAttention",
    "CrossShapedWindowAttention",
    "DepthwiseConv",
    "EfficientAttention",
    "EnhancedLinearAttention",
    "FocusedLinearAttention",
    "GlobalFilter",
    "HydraAttention",
    "InceptionMixer",
    "InteractiveAttention",
    "LambdaConvolution",
    "LiSA",
    "ReLULinearAttention",
    "RelationalSelfAttention",
    "ShiftedWindowAttention",
    "SoftmaxAttention",
    "SpatialReductionAttention",
    "StructureAwareAttention",
    "build_attention",
]
