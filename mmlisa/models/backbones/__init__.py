"""Backbones: one file per host family."""

from .ivit import iViT
from .lisanet import LiSANet

__all__ = ["LiSANet", "iViT"]
