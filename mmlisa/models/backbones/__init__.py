"""Backbones: one file per host family."""

from .castling_vit import CastlingDeiT, CastlingViT
from .esnet import CastlingESNetViT, ESNet
from .flatten_cswin import FLattenCSwin
from .flatten_deit import FLattenDeiT
from .flatten_pvt import FLattenPVT, FLattenPVTv2
from .flatten_swin import FLattenSwin
from .interactive_vit import InteractiveViT
from .ivit import iViT
from .lcnet import CastlingLCNetViT, LCNet
from .levit import CastlingLeViT
from .lisanet import LiSANet
from .mvitv2 import CastlingMViTv2

__all__ = [
    "CastlingDeiT",
    "CastlingESNetViT",
    "CastlingLCNetViT",
    "CastlingLeViT",
    "CastlingMViTv2",
    "CastlingViT",
    "ESNet",
    "FLattenCSwin",
    "FLattenDeiT",
    "FLattenPVT",
    "FLattenPVTv2",
    "FLattenSwin",
    "InteractiveViT",
    "LCNet",
    "LiSANet",
    "iViT",
]
