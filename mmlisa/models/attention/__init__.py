"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .builder import build_attention
from .convolutional import ConvolutionalAttention, DepthwiseConv, InceptionMixer
from .global_filter import GlobalFilter
from .interactive import InteractiveAttention
from .lisa import LiSA
from .relational import LambdaConvolution, RelationalSelfAttention
from .softmax import SoftmaxAttention
from .structure_aware import StructureAwareAttention

__all__ = [
    "ConvolutionalAttention",
    "DepthwiseConv",
    "GlobalFilter",
    "InceptionMixer",
    "InteractiveAttention",
    "LambdaConvolution",
    "LiSA",
    "RelationalSelfAttention",
    "SoftmaxAttention",
    "StructureAwareAttention",
    "build_attention",
]
