"""Layers that hosts share and timm lacks."""

from .channels_first import ChannelLayerNorm, ChannelLinear, build_norm, depthwise
from .mobile import ConvNorm, LinearNorm, SqueezeExcite, TokenNorm, init_layers
from .relative_position import RelativePosition
from .token_mixer import TokenMixer
from .transformer import MapBlock, TokenMlp, TransformerBlock, over_grid, to_map, to_tokens

__all__ = [
    "ChannelLayerNorm",
    "ChannelLinear",
    "ConvNorm",
    "LinearNorm",
    "MapBlock",
    "RelativePosition",
    "SqueezeExcite",
    "TokenMixer",
    "TokenMlp",
    "TokenNorm",
    "TransformerBlock",
    "build_norm",
    "depthwise",
    "init_layers",
    "over_grid",
    "to_map",
    "to_tokens",
]
