"""Layers of the mobile convolutional hosts."""

from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    """Channels weighted by what their means say: ``[B, C, H, W] -> [B, C, H, W]``, hidden width C / 4."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, channels // 4, 1)
        self.conv_expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv_reduce(x.mean((2, 3), keepdim=True)).relu()
        return x * nn.functional.hardsigmoid(self.conv_expand(weight))


def init_layers(module: nn.Module) -> None:
    """Linear: truncated normal 0.02; convolutions: normal, scaled by their fan-out."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
        elif isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
