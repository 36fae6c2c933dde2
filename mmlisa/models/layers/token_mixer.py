"""An attention operator in the place of a convolution."""

from torch import Tensor, nn

from .tokens import to_map, to_tokens


class TokenMixer(nn.Module):
    """An attention operator on a map: ``[B, C, *grid] -> [B, C, *grid]``."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        return to_map(self.operator(to_tokens(x), grid), grid)
