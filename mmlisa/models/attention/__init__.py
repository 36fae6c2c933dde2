"""Attention operators as modules: ``forward(x: [B, N, C], grid) -> [B, N, C]``, built by config."""

from .builder import build_attention
from .lisa import LiSA

__all__ = ["LiSA", "build_attention"]
