"""Backbones: one file per host family."""

from .flatten_cswin import FLattenCSwin
from .flatten_deit import FLattenDeiT
from .flatten_pvt import FLattenPVT, FLattenPVTv2
from .flatten_swin import FLattenSwin
from .interactive_vit import InteractiveViT
from .ivit import iViT
from .lisanet import LiSANet

__all__ = [
    "FLattenCSwin",
    "FLattenDeiT",
    "FLattenPVT",
    "FLattenPVTv2",
    "FLattenSwin",
    "InteractiveViT",
    "LiSANet",
    "iViT",
]
