"""Backbones: one file per host family."""

from .lisanet import LiSANet

__all__ = ["LiSANet"]
