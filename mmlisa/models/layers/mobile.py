"""Layers of the mobile backbones."""

from torch import Tensor, nn

from .norms import norm_tokens


class SqueezeExcite(nn.Module):
    """Channels weighted by a small network of their means: ``[B, C, H, W] -> [B, C, H, W]``, hidden width C / 4."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, channels // 4, 1)
        self.conv_expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv_reduce(x.mean((2, 3), keepdim=True)).relu()
        return x * nn.functional.hardsigmoid(self.conv_expand(weight))


class ConvNorm(nn.Module):
    """Convolution without bias, then BN: ``[B, C_in, H, W] -> [B, C, H', W']``; named as in timm's LeViT."""

    def __init__(self, in_channels: int, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.linear = nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))


class LinearNorm(nn.Module):
    """Linear layer without bias, then BN: ``[B, N, C_in] -> [B, N, C]``; named as in timm's LeViT."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, channels, bias=False)
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return norm_tokens(self.bn, self.linear(x))
