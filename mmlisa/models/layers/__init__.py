"""Layers that hosts share and timm lacks."""

from .channels_first import ChannelLayerNorm, ChannelLinear, build_norm
from .relative_position import RelativePosition
from .token_mixer import TokenMixer

__all__ = ["ChannelLayerNorm", "ChannelLinear", "RelativePosition", "TokenMixer", "build_norm"]
