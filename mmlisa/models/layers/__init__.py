"""Layers that backbones share; names are imported at their first use."""

from mmlisa.lazy import names_at_first_use

__all__, __getattr__, __dir__ = names_at_first_use(
    __name__,
    {
        "blocks": "Block Branch LayerNorm Mlp Residual ResidualBlock SepConv Stage build_norm stochastic_depth has_hooks",
        "grids": "GridCache PositionedPatchEmbed PositionsOnLoad RelativePosition ResizeOnLoad resize_rows",
        "tokens": (
            "CONVOLUTIONS ConvNorm ConvStack ConvStem InvertedMerging LePE LinearNorm PatchEmbed SharedTokenConv "
            "ShortcutTokenConv SqueezeExcite TokenConv after_prefix norm_tokens to_map to_tokens token_conv"
        ),
        "windows": "cyclic_shift merge_windows pad_to_windows split_windows valid_tokens window_shift",
    },
)
