"""The MLP and the separable convolution of the backbones."""

from collections.abc import Sequence

from torch import nn

from .recompute import Branch
from .tokens import token_conv


class Mlp(Branch):
    """Linear, (depthwise convolution,) activation, Linear: ``[B, N, C] -> [B, N, C]``.

    Args:
        channels: C.
        hidden: width between the two linear layers.
        conv_size: kernel size of the convolution; None for none.
        act: the activation; GELU by default.
        bias: of the linear layers.
        grid_axes: of the token grid, 2 or 3.
    """

    def __init__(
        self,
        channels: int,
        hidden: int,
        conv_size: int | None = None,
        *,
        act: nn.Module | None = None,
        bias: bool = True,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.fc1 = nn.Linear(channels, hidden, bias)
        self.dwconv = token_conv(hidden, conv_size, grid_axes) if conv_size else None
        self.act = nn.GELU() if act is None else act
        self.fc2 = nn.Linear(hidden, channels, bias)

    def layers(self) -> list[nn.Module]:
        return [self.fc1, *([self.dwconv] if self.dwconv else []), self.act, self.fc2]


class SepConv(Branch):
    """Pointwise C -> 2C, activation, depthwise convolution, pointwise 2C -> C: ``[B, N, C] -> [B, N, C]``.

    Args:
        channels: C.
        kernel_size: of the depthwise convolution, one number or one per axis of the grid.
        act: the activation; GELU by default.
        bias: of all three layers.
        grid_axes: of the token grid, 2 or 3.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] = 7,
        *,
        act: nn.Module | None = None,
        bias: bool = True,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        self.hidden = 2 * channels
        self.pwconv1 = nn.Linear(channels, self.hidden, bias)
        self.act = nn.GELU() if act is None else act
        self.dwconv = token_conv(self.hidden, kernel_size, grid_axes, bias=bias)
        self.pwconv2 = nn.Linear(self.hidden, channels, bias)

    def layers(self) -> list[nn.Module]:
        return [self.pwconv1, self.act, self.dwconv, self.pwconv2]
