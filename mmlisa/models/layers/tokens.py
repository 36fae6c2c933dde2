"""Maps as tokens ``x: [B, N, C]`` in row-major order beside their ``grid``, and back; embeddings, convolutions, norms of tokens.

N may exceed prod(grid) by leading prefix (class) tokens.
"""

from collections.abc import Sequence
from math import prod
from numbers import Integral

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlisa.errors import UserError
from mmlisa.ops.context import divide_up, has_free_size

CONVOLUTIONS = {2: nn.Conv2d, 3: nn.Conv3d}  # by the axes of the grid


def to_map(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, prod(grid), C] -> [B, C, *grid]``, a view in channels-last memory.

    With ``transpose`` and ``unflatten`` instead, convolutions would not recognise a single image as channels-last because of its
    batch stride, and each of them would copy it.
    """
    return x.unflatten(1, grid).movedim(-1, 1)


def to_tokens(x: Tensor) -> Tensor:
    """``[B, C, *grid] -> [B, prod(grid), C]``, the inverse of :func:`to_map`."""
    return x.flatten(2).transpose(1, 2)


def after_prefix(x: Tensor, prefix: int) -> Tensor:
    """Tokens of the grid behind zeros for the prefix tokens: ``[B, N, C] -> [B, prefix + N, C]``."""
    return F.pad(x, (0, 0, prefix, 0)) if prefix else x


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Tensor:
    """Depthwise convolution over the grid: ``[B, N, C] -> [B, N, C]``; prefix tokens pass through unchanged."""
    prefix = x.shape[1] - prod(grid)
    conv = F.conv2d if len(grid) == 2 else F.conv3d
    y = to_tokens(conv(to_map(x[:, prefix:], grid), weight, bias, padding="same", groups=weight.shape[0]))
    return torch.cat([x[:, :prefix], y], dim=1) if prefix else y


def convolve_and_add(x: Tensor, weight: Tensor, bias: Tensor | None, grid: Sequence[int]) -> Tensor:
    """``x + convolve(x)``."""
    return x + convolve(x, weight, bias, grid)


class _OnTokens:
    """Mixin that makes a convolution of maps a depthwise one of tokens: ``[B, N, C] -> [B, N, C]``."""

    function = staticmethod(convolve)

    def __init__(self, channels: int, kernel_size: int | Sequence[int], bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)
        if not all(size % 2 for size in self.kernel_size):  # PyTorch would shift the map by half a token
            raise UserError(f"kernel_size={kernel_size!r}; it must be odd")

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        return self.function(x, self.weight, self.bias, grid)


class TokenConv(_OnTokens, nn.Conv2d):
    """:func:`convolve` as a layer, over the grid of an image."""


class TokenConv3d(_OnTokens, nn.Conv3d):
    """:func:`convolve` as a layer, over the grid of a video."""


class ShortcutTokenConv(TokenConv):
    """:func:`convolve_and_add` as a layer, over the grid of an image."""

    function = staticmethod(convolve_and_add)


class SharedTokenConv(TokenConv):
    """A depthwise convolution whose d kernels are shared by all heads: ``[B, N, h d] -> [B, N, h d]``."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        # Over all channels with repeated weights: folding the heads into the batch would copy the map.
        heads = x.shape[2] // self.out_channels
        return convolve(x, self.weight.repeat(heads, 1, 1, 1), self.bias.repeat(heads), grid)


class LePE(TokenConv):
    """Locally enhanced positional encoding: a depthwise convolution of the values (Dong et al., "CSwin", Eq. 7).

    Prefix tokens have no position, and get zeros.
    """

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        prefix = x.shape[1] - prod(grid)
        return after_prefix(super().forward(x[:, prefix:], grid), prefix)


TOKEN_CONVOLUTIONS = {2: TokenConv, 3: TokenConv3d}


def token_conv(
    channels: int, kernel_size: int | Sequence[int], grid_axes: int = 2, *, bias: bool = True
) -> TokenConv | TokenConv3d:
    """Depthwise convolution over a grid (H, W) or (T, H, W); ``kernel_size``: odd, a number or one per axis (else UserError)."""
    if not isinstance(kernel_size, Integral) and len(kernel_size) != grid_axes:
        raise UserError(f"kernel_size={kernel_size!r}; it must be a number, or {grid_axes}, one per axis of the grid")
    return TOKEN_CONVOLUTIONS[grid_axes](channels, kernel_size, bias)


def norm_tokens(norm: nn.Module, x: Tensor) -> Tensor:
    """Apply ``norm`` to tokens ``[..., C]``; a batch norm gets them as ``[N, C]``.

    The caller does this, not a class of batch norms: to convert batch norms to synchronised ones or back, PyTorch and MMEngine
    replace each of them by a class of their own.
    """
    return norm(x.flatten(0, -2)).view(x.shape) if isinstance(norm, _BatchNorm) else norm(x)


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


class PatchEmbed(nn.Module):
    """Convolution and norm on a map padded to a multiple of the stride, so that the grid is divided by it, rounding up.

    Map ``[B, C_in, *grid]`` -> tokens ``[B, N, C]`` and their grid. Kernel size, stride and padding are numbers, or one per axis.
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
        pads: list[int] = []
        for n, stride in zip(x.shape[:1:-1], self.stride[::-1], strict=True):
            pads += 0, divide_up(n, stride) * stride - n
        if has_free_size(*pads) or any(pads):
            x = F.pad(x, pads)
        x = self.proj(x)
        return norm_tokens(self.norm, to_tokens(x)), tuple(x.shape[2:])


class ConvStack(nn.Sequential):
    """Convolutional layers one after the other: map ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid."""

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x = super().forward(x)
        return to_tokens(x), tuple(x.shape[2:])


class ConvStem(nn.Module):
    """Five convolutions with batch norms, of stride 4: image ``[B, C_in, H, W]`` -> tokens ``[B, N, C]`` and their grid.

    The image is padded with zeros to whole patches. In MILA's stem, the second and third convolution are a residual branch
    (``shortcut``), without an activation after the sum; H-ViT³ has none.
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
