"""Layers that hosts share."""

from .activations import StarReLU
from .blocks import Block
from .branches import Mlp, SepConv
from .drop_path import DropPath
from .embeddings import CONVOLUTIONS, ConvStack, ConvStem, InvertedMerging, PatchEmbed
from .gated import GatedProjection, LePE
from .grid_cache import GridCache
from .hooks import has_hooks, has_wrapped_weight
from .init import init_convolutions, init_linear
from .mobile import ConvNorm, LinearNorm, SqueezeExcite, make_divisible
from .norms import build_norm, norm_tokens
from .position_resize import PositionResize
from .recompute import Branch, LayerNorm
from .relative_position import RelativePosition
from .resize_on_load import ResizeOnLoad, resize_rows
from .tokens import SharedTokenConv, ShortcutTokenConv, TokenConv, to_map, to_tokens, token_conv
from .windows import cyclic_shift, merge_windows, pad_to_windows, split_windows, valid_tokens, window_shift

__all__ = [
    "CONVOLUTIONS",
    "Block",
    "Branch",
    "ConvNorm",
    "ConvStack",
    "ConvStem",
    "DropPath",
    "GatedProjection",
    "GridCache",
    "InvertedMerging",
    "LayerNorm",
    "LePE",
    "LinearNorm",
    "Mlp",
    "PatchEmbed",
    "PositionResize",
    "RelativePosition",
    "ResizeOnLoad",
    "SepConv",
    "SharedTokenConv",
    "ShortcutTokenConv",
    "SqueezeExcite",
    "StarReLU",
    "TokenConv",
    "build_norm",
    "cyclic_shift",
    "has_hooks",
    "has_wrapped_weight",
    "init_convolutions",
    "init_linear",
    "make_divisible",
    "merge_windows",
    "norm_tokens",
    "pad_to_windows",
    "resize_rows",
    "split_windows",
    "to_map",
    "to_tokens",
    "token_conv",
    "valid_tokens",
    "window_shift",
]
