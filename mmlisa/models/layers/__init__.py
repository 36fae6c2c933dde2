"""Layers that hosts share and timm lacks."""

from .channels_first import ChannelLayerNorm, ChannelLinear, build_norm, depthwise
from .relative_position import RelativePosition
from .token_mixer import TokenMixer
from .tokens import PatchEmbed, PositionResize, TokenBlock, TokenConv, TokenMlp, to_map, to_tokens
from .tokenwise import tokenwise
from .windows import merge_windows, split_windows, valid_tokens

__all__ = [
    "ChannelLayerNorm",
    "ChannelLinear",
    "PatchEmbed",
    "PositionResize",
    "RelativePosition",
    "TokenBlock",
    "TokenConv",
    "TokenMixer",
    "TokenMlp",
    "build_norm",
    "depthwise",
    "merge_windows",
    "split_windows",
    "to_map",
    "to_tokens",
    "tokenwise",
    "valid_tokens",
]
