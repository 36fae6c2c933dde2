"""Networks written out as functions of their weights, with PyTorch's own functions."""

import torch
import torch.nn.functional as F
from torch import Tensor


class Weights:
    """Those of a network below a prefix, and the layers that they are of."""

    def __init__(self, state: dict[str, Tensor], prefix: str = "") -> None:
        self.state, self.prefix = state, prefix

    def __truediv__(self, name: object) -> "Weights":
        return Weights(self.state, f"{self.prefix}{name}.")

    def __getitem__(self, name: str) -> Tensor | None:
        return self.state.get(self.prefix + name)

    def linear(self, x: Tensor) -> Tensor:
        return F.linear(x, self["weight"], self["bias"])

    def conv(self, x: Tensor, stride: int = 1) -> Tensor:
        """Of odd kernels, which keep the size; a channel alone where the weights are of one."""
        weight = self["weight"]
        groups = x.shape[1] if weight.shape[1] == 1 else 1
        return F.conv2d(x, weight, self["bias"], stride, weight.shape[-1] // 2, groups=groups)

    def layer_norm(self, x: Tensor, eps: float = 1e-6) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self["weight"], self["bias"], eps)

    def batch_norm(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self["running_mean"], self["running_var"], self["weight"], self["bias"])

    def token_norm(self, x: Tensor) -> Tensor:
        return self.batch_norm(x.mT).mT

    def linear_norm(self, x: Tensor) -> Tensor:
        return (self / "bn").token_norm((self / "linear").linear(x))


def to_map(x: Tensor, grid: tuple[int, int]) -> Tensor:
    return x.mT.unflatten(2, grid)


def to_tokens(x: Tensor) -> Tensor:
    return x.flatten(2).mT


def on_map(conv: Weights, x: Tensor, grid: tuple[int, int]) -> Tensor:
    """A convolution of the tokens of a grid; the others, in front, pass by."""
    n = grid[0] * grid[1]
    return torch.cat([x[:, :-n], to_tokens(conv.conv(to_map(x[:, -n:], grid)))], dim=1)


def heads(x: Tensor, count: int) -> Tensor:
    return torch.stack(x.chunk(count, dim=-1), dim=1)


def joined(x: Tensor) -> Tensor:
    return torch.cat(x.unbind(1), dim=-1)


def turned(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """``[..., N, C]``: pairs of channels as complex numbers, the first half turned by the row, the second by the column."""
    count = x.shape[-1] // 4
    theta = 10000 ** -(torch.arange(count, dtype=x.dtype) / count)
    rows, columns = (torch.arange(n, dtype=x.dtype)[:, None] * theta for n in grid)
    angle = torch.cat(
        [rows[:, None].expand(-1, grid[1], -1), columns[None].expand(grid[0], -1, -1)], dim=2
    ).flatten(0, 1)  # fmt: skip
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
