"""The transformer block of the backbones."""

from collections.abc import Callable, Sequence
from functools import partial

from timm.layers import DropPath
from torch import Tensor, nn

from .branches import Mlp
from .norms import norm_tokens
from .recompute import LayerNorm

_layer_norm = partial(LayerNorm, eps=1e-6)


class Block(nn.Module):
    """``x + DropPath(attention(norm(x)))``, then ``x + DropPath(MLP(norm(x)))``: ``[B, N, C] -> [B, N, C]``.

    Args:
        channels: C.
        attention: an operator or any other token mixer, called as ``attention(tokens, grid)``. If it has an attribute
            ``mlp_conv``, a kernel size, the MLP gets a depthwise convolution.
        mlp_ratio: hidden width of the MLP over C.
        mlp_conv: kernel size of a depthwise convolution in the MLP for any operator; None for none.
        drop_path: rate of stochastic depth.
        norm: makes a norm over a number of channels; a LayerNorm by default. Training needs least memory with
            :class:`mmlisa.layers.LayerNorm`.
        grid_axes: axes of the token grid, 2 or 3.
    """

    def __init__(
        self,
        channels: int,
        attention: nn.Module,
        *,
        mlp_ratio: float,
        mlp_conv: int | None = None,
        drop_path: float = 0.0,
        norm: Callable[[int], nn.Module] = _layer_norm,
        grid_axes: int = 2,
    ) -> None:
        super().__init__()
        mlp_conv = mlp_conv or getattr(attention, "mlp_conv", None)
        self.norm1 = norm(channels)
        self.attn = attention
        self.norm2 = norm(channels)
        self.mlp = Mlp(channels, int(channels * mlp_ratio), mlp_conv, grid_axes=grid_axes)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        x = x + self.drop_path(self.attn(norm_tokens(self.norm1, x), grid))
        return x + self.drop_path(self.mlp(norm_tokens(self.norm2, x), grid))
