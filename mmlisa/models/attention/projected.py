"""Projections and heads, around functions over ``[B, h, N, d]``."""

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from .builder import check_heads, count_prefix


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``[B, N, C] -> [B, h, N, d]``, a view."""
    return x.unflatten(2, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``[B, h, N, d] -> [B, N, C]``."""
    return x.transpose(1, 2).flatten(2)


class ProjectedAttention(nn.Module):
    """Base of operators that are a function of queries, keys and values; prefix tokens are tokens like all others.

    Args:
        embed_dims: channels C.
        num_heads: heads h.
        grid: the pretraining grid; these operators see tokens as a set, it changes nothing.
        qkv_bias: bias in the query, key and value projection.

    Raises:
        ValueError: heads that do not divide the channels; at the call, fewer tokens than the grid has.
    """

    def __init__(self, embed_dims: int, num_heads: int, *, grid: Sequence[int], qkv_bias: bool = True) -> None:
        super().__init__()
        check_heads(embed_dims, num_heads)
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The operator's function, over ``[B, h, N, d]``."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        count_prefix(x, grid)
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        return self.proj(join_heads(self.attend(query, key, value)))
