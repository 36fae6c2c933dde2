"""An attention operator in the place of a convolution."""

from torch import Tensor, nn


class TokenMixer(nn.Module):
    """An attention operator on a map: ``[B, C, *grid] -> [B, C, *grid]``."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        return self.operator(x.flatten(2).transpose(1, 2), grid).transpose(1, 2).unflatten(2, grid)
