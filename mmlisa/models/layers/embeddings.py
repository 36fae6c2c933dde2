"""What leads into a stage: a map ``[B, C_in, *grid]`` -> tokens ``[B, N, C]`` and their grid."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from .convolutions import CONVOLUTIONS
from .tokens import to_tokens


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
        self.norm = norm

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        missing = [-n % s for n, s in zip(x.shape[2:], self.proj.stride, strict=True)]
        if any(missing):
            x = F.pad(x, [pad for n in reversed(missing) for pad in (0, n)])
        x = self.proj(x)
        return self.norm(to_tokens(x)), tuple(x.shape[2:])


class ConvStack(nn.Sequential):
    """Convolutional layers one after the other, from maps to maps."""

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x = super().forward(x)
        return to_tokens(x), tuple(x.shape[2:])
