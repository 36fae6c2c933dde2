"""Layers that hosts share and timm lacks."""

from .channels_first import CONVOLUTIONS, ChannelLayerNorm, build_norm, depthwise
from .grid_cache import GridCache
from .linear import ChannelLinear, TokenLinear
from .mobile import ConvNorm, LinearNorm, SqueezeExcite, TokenNorm, init_layers
from .position_resize import PositionResize
from .relative_position import RelativePosition
from .token_mixer import TokenMixer
from .tokens import MapBlock, PatchEmbed, TokenBlock, TokenConv, TokenMlp, to_map, to_tokens
from .windows import merge_windows, split_windows, valid_tokens

__all__ = [
    "CONVOLUTIONS",
    "ChannelLayerNorm",
    "ChannelLinear",
    "ConvNorm",
    "GridCache",
    "LinearNorm",
    "MapBlock",
    "PatchEmbed",
    "PositionResize",
    "RelativePosition",
    "SqueezeExcite",
    "TokenBlock",
    "TokenConv",
    "TokenLinear",
    "TokenMixer",
    "TokenMlp",
    "TokenNorm",
    "build_norm",
    "depthwise",
    "init_layers",
    "merge_windows",
    "split_windows",
    "to_map",
    "to_tokens",
    "valid_tokens",
]
