"""Layers that backbones share."""

from .blocks import Block, Residual, ResidualBlock
from .branches import Mlp, SepConv
from .embeddings import CONVOLUTIONS, ConvStack, ConvStem, InvertedMerging, PatchEmbed
from .gated import GatedProjection, LePE
from .grid_cache import GridCache
from .hooks import has_hooks
from .init import init_convolutions, init_linear, init_stem_biases
from .mobile import ConvNorm, LinearNorm, SqueezeExcite
from .norms import build_norm, norm_tokens
from .position_resize import PositionResize, PositionsOnLoad
from .recompute import Branch, LayerNorm
from .relative_position import RelativePosition
from .resize_on_load import ResizeOnLoad, resize_rows
from .tokens import SharedTokenConv, ShortcutTokenConv, TokenConv, after_prefix, to_map, to_tokens, token_conv
from .windows import cyclic_shift, merge_windows, pad_to_windows, split_windows, valid_tokens, window_shift
