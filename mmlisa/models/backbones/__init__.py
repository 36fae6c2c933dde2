"""Backbones: one file per host family."""

from .interactive_vit import InteractiveViT
from .ivit import iViT
from .lisanet import LiSANet

__all__ = ["InteractiveViT", "LiSANet", "iViT"]
