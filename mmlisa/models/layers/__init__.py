"""Layers that hosts share and timm lacks."""

from .channels_first import ChannelLayerNorm, ChannelLinear, build_norm
from .token_mixer import TokenMixer

__all__ = ["ChannelLayerNorm", "ChannelLinear", "TokenMixer", "build_norm"]
