"""Backbones: one file per host family."""

from .castling_vit import CastlingDeiT, CastlingViT
from .esnet import CastlingESNetViT, ESNet
from .flatten_cswin import FLattenCSwin
from .flatten_deit import FLattenDeiT
from .flatten_pvt import FLattenPVT, FLattenPVTv2
from .flatten_swin import FLattenSwin
from .hvit3 import HViT3, ViT3
from .interactive_vit import InteractiveViT
from .ivit import iViT
from .lcnet import CastlingLCNetViT, LCNet
from .levit import CastlingLeViT
from .lisanet import LiSANet
from .mila import MILA
from .mvitv2 import CastlingMViTv2

__all__ = [
    "MILA",
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
    "HViT3",
    "InteractiveViT",
    "LCNet",
    "LiSANet",
    "ViT3",
    "iViT",
]
