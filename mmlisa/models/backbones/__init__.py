"""Backbones: one file per host family."""

from .esnet import CastlingESNetViT, ESNet
from .ivit import iViT
from .lcnet import CastlingLCNetViT, LCNet
from .levit import CastlingLeViT
from .lisanet import LiSANet

__all__ = ["CastlingESNetViT", "CastlingLCNetViT", "CastlingLeViT", "ESNet", "LCNet", "LiSANet", "iViT"]
