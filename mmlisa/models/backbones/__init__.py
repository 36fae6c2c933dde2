"""Backbones: one file per host family."""

from .esnet import CastlingESNetViT, ESNet
from .ivit import iViT
from .lcnet import CastlingLCNetViT, LCNet
from .lisanet import LiSANet

__all__ = ["CastlingESNetViT", "CastlingLCNetViT", "ESNet", "LCNet", "LiSANet", "iViT"]
