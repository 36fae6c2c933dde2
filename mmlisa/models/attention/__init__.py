"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .agent import AgentAttention
from .average_pooling import AveragePooling
from .base import build_attention
from .convolutional import ConvolutionalAttention
from .cross_shaped_window import CrossShapedWindowAttention
from .depthwise_conv import DepthwiseConv
from .focused_linear import FocusedLinearAttention
from .gated_linear import MALAAttention, RALAAttention
from .global_filter import GlobalFilter
from .heads import HeadPool, join_heads, split_heads
from .inception import InceptionMixer
from .inline import InLineAttention
from .interactive import InteractiveAttention
from .lambda_convolution import LambdaConvolution
from .levit import LeViTAttention, PooledQueryAttention, SubsampledAttention
from .linear_angular import LinearAngularAttention
from .linear_kernels import (
    CosineAttention,
    EfficientAttention,
    EnhancedLinearAttention,
    HydraAttention,
    MeanCenteredAttention,
    ReLUExpAttention,
    ReLULinearAttention,
    ReLUSoftmaxAttention,
)
from .lisa import LiSA
from .mila import MILAAttention
from .polarity_aware import PolarityAwareAttention
from .pooled import PooledAttention
from .projected import ProjectedAttention, castling_operators, drop_aux
from .relational import RelationalSelfAttention
from .shifted_window import ShiftedWindowAttention
from .softmax import PooledSoftmaxAttention, SoftmaxAttention
from .spatial_reduction import SpatialReductionAttention
from .structure_aware import StructureAwareAttention
from .ttt import TTTAttention
