"""Layers that hosts share and timm lacks."""

from .channels_first import ChannelLayerNorm, ChannelLinear, build_norm
from .relative_position import RelativePosition
from .token_mixer import TokenMixer, as_map
from .tokenwise import tokenwise

__all__ = ["ChannelLayerNorm", "ChannelLinear", "RelativePosition", "TokenMixer", "as_map", "build_norm", "tokenwise"]
