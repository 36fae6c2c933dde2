"""Initialisation that backbones share."""

from math import prod, sqrt

from torch import nn


def init_linear(module: nn.Module) -> None:
    """Linear layers: truncated normal with standard deviation 0.02, biases 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def init_convolutions(module: nn.Module) -> None:
    """Convolutions: normal with variance 2 / fan-out of a group, biases 0 (He et al., 2015; PVTv2's code).

    The fan-out counts what one input feeds: a depthwise output depends on one channel, not on all of them.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d):
            fan_out = prod(layer.kernel_size) * layer.out_channels // layer.groups
            nn.init.normal_(layer.weight, std=sqrt(2 / fan_out))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def init_stem_biases(stem: nn.Module) -> None:
    """Biases of the stem's convolutions: truncated normal with standard deviation 0.02.

    With biases of 0, the padding of a batch would become tokens of exactly 0. Convolutions, LiSA and MLPs map 0 to 0, the
    LayerNorm of such a token multiplies its gradient by 1000, and a dozen blocks overflow fp32.
    """
    for layer in stem.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d) and layer.bias is not None:
            nn.init.trunc_normal_(layer.bias, std=0.02)
