"""Layers that hosts share and timm lacks."""

from .channels_first import ChannelLayerNorm, ChannelLinear, build_norm

__all__ = ["ChannelLayerNorm", "ChannelLinear", "build_norm"]
