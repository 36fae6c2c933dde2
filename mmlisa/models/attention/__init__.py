"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .builder import build_attention
from .interactive import InteractiveAttention
from .lisa import LiSA
from .softmax import SoftmaxAttention

__all__ = ["InteractiveAttention", "LiSA", "SoftmaxAttention", "build_attention"]
