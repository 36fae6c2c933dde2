"""Checkpoints in, safely."""

from .caformer import convert_caformer
from .conversion import Conversion
from .flatten import convert_flatten
from .inflation import inflate
from .loading import latest_checkpoint, load_checkpoint, load_weights, match_report, use_safe_loader

__all__ = [
    "Conversion",
    "convert_caformer",
    "convert_flatten",
    "inflate",
    "latest_checkpoint",
    "load_checkpoint",
    "load_weights",
    "match_report",
    "use_safe_loader",
]
