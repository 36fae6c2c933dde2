"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .builder import build_attention
from .convolutional import ConvolutionalAttention, DepthwiseConv, InceptionMixer
from .global_filter import GlobalFilter
from .interactive import InteractiveAttention
from .kernels import (
    CosineAttention,
    MeanCenteredAttention,
    PooledSoftmaxAttention,
    ReLUExpAttention,
    ReLUSoftmaxAttention,
    SoftmaxKernelAttention,
)
from .levit import LeViTAttention, OffsetBias
from .linear_angular import LinearAngularAttention, castling_operators, drop_aux
from .lisa import LiSA
from .projected import HeadPool, ProjectedAttention
from .relational import LambdaConvolution, RelationalSelfAttention
from .softmax import SoftmaxAttention
from .structure_aware import StructureAwareAttention

__all__ = [
    "ConvolutionalAttention",
    "CosineAttention",
    "DepthwiseConv",
    "GlobalFilter",
    "HeadPool",
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
    "ReLUSoftmaxAttention",
    "RelationalSelfAttention",
    "SoftmaxAttention",
    "SoftmaxKernelAttention",
    "StructureAwareAttention",
    "build_attention",
    "castling_operators",
    "drop_aux",
]
