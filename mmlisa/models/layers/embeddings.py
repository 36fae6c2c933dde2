"""Embeddings, which lead into a stage: a map ``[B, C_in, *grid]`` -> tokens ``[B, N, C]`` and their grid."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.ops.context import divide_up, has_free_size

from .mobile import ConvNorm
from .norms import norm_tokens
from .tokens import to_tokens

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class PatchEmbed(nn.Module):
    """Convolution and norm on a map padded to a multiple of the stride, so that the grid is divided by it, rounding up.

    Args:
        in_channels: channels of the map.
        channels: C.
        kernel_size, stride, padding: of the convolution, one number or one per axis of the grid.
        norm: over the channels of the tokens.
        grid_axes: axes of the grid.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int],
        padding: int | Sequence[int] = 0,
        *,
        norm: nn.Module,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        self.proj = CONVOLUTIONS[grid_axes](in_channels, channels, kernel_size, stride, padding)
        self.stride = self.proj.stride
        self.norm = norm

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        missing = [divide_up(n, s) * s - n for n, s in zip(x.shape[2:], self.stride, strict=True)]
        if has_free_size(*missing) or any(missing):
            x = F.pad(x, [pad for n in reversed(missing) for pad in (0, n)])
        x = self.proj(x)
        return norm_tokens(self.norm, to_tokens(x)), tuple(x.shape[2:])


class ConvStack(nn.Sequential):
    """Convolutional layers one after the other, from maps to maps."""

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x = super().forward(x)
        return to_tokens(x), tuple(x.shape[2:])


class ConvStem(nn.Module):
    """Five convolutions with batch norms, of stride 4: image ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid.

    The image is padded with zeros to whole patches (stems of MILA and of H-ViT³).

    Args:
        in_channels: channels of the image.
        channels: C.
        shortcut: the second and third convolution are a residual branch, without an activation after the sum.
    """

    def __init__(self, in_channels: int, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        half, wide = channels // 2, 4 * channels
        self.shortcut = shortcut
        self.shrink = ConvNorm(in_channels, half, 3, 2)
        self.conv1, self.conv2 = ConvNorm(half, half, 3), ConvNorm(half, half, 3)
        self.expand = ConvNorm(half, wide, 3, 2)
        self.reduce = ConvNorm(wide, channels, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        height, width = image.shape[2:]
        x = self.shrink(F.pad(image, (0, -width % 4, 0, -height % 4))).relu()
        y = self.conv2(self.conv1(x).relu())
        y = x + y if self.shortcut else y.relu()
        x = self.reduce(self.expand(y).relu())
        return to_tokens(x), tuple(x.shape[2:])


class InvertedMerging(nn.Module):
    """An inverted bottleneck of stride 2: map ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid.

    Pointwise convolution to 4 C channels, ReLU, depthwise 3x3 convolution, ReLU, pointwise convolution, batch norm (Han et al.,
    MILA). An odd side is padded with zeros before the first convolution, so the padding carries that convolution's bias.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        hidden = 4 * channels
        self.expand = nn.Conv2d(in_channels, hidden, 1)
        self.conv = nn.Conv2d(hidden, hidden, 3, 2, padding=1, groups=hidden)
        self.reduce = nn.Conv2d(hidden, channels, 1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        height, width = x.shape[2:]
        x = self.norm(self.mix(F.pad(x, (0, width % 2, 0, height % 2))))
        return to_tokens(x), tuple(x.shape[2:])

    def mix(self, x: Tensor) -> Tensor:
        """The three convolutions, of even sides: ``[B, C_in, H, W] -> [B, C, H / 2, W / 2]``."""
        return self.reduce(self.conv(self.expand(x).relu()).relu())
