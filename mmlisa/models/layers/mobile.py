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


class ConvNorm(nn.Module):
    """Convolution without bias, then BN: ``[B, C_in, H, W] -> [B, C, H', W']``; named as timm's LeViT."""

    def __init__(self, in_channels: int, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.linear = nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))


class TokenNorm(nn.BatchNorm1d):
    """BN over the channels of tokens ``[B, N, C]``, of any number of tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).reshape(x.shape)


class LinearNorm(nn.Module):
    """Linear layer without bias, then BN: ``[B, N, C_in] -> [B, N, C]``; named as timm's LeViT."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, channels, bias=False)
        self.bn = TokenNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))
