"""Between maps and tokens."""

from collections.abc import Sequence

from torch import Tensor, nn


def as_map(tokens: Tensor, grid: Sequence[int]) -> Tensor:
    """``[B, N, C] -> [B, C, *grid]``, a channels-last view.

    Not by ``transpose`` and ``unflatten``: for a single image that leaves a batch stride which convolutions do not take for
    channels-last, and they copy the map to and fro.
    """
    return tokens.unflatten(1, tuple(grid)).movedim(-1, 1)


class TokenMixer(nn.Module):
    """An attention operator on a map: ``[B, C, *grid] -> [B, C, *grid]``."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        return as_map(self.operator(x.flatten(2).transpose(1, 2), grid), grid)
