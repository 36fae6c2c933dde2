"""Agent attention (Han et al., "Agent Attention: On the Integration of Softmax and Linear Attention")."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlisa.models.layers.grids import ResizeOnLoad, stretch
from mmlisa.models.layers.tokens import LePE
from mmlisa.ops import agent, at_least_fp32, no_autocast, pool_landmarks
from mmlisa.registry import MODELS

from .base import HeadedAttention, join_heads, split_heads

_SIDE = 7  # side of the maps from which the biases are interpolated


class AgentBias(ResizeOnLoad):
    """Bias between n agents and the tokens: a small map for each agent, a row's and a column's bias, all resized to the grid."""

    on_grid = ("rows", "columns")

    def __init__(self, num_heads: int, agents: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.map = nn.Parameter(torch.empty(num_heads, agents, _SIDE, _SIDE))
        self.rows = nn.Parameter(torch.empty(num_heads, agents, grid[0], 1))
        self.columns = nn.Parameter(torch.empty(num_heads, agents, 1, grid[1]))
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return stretch(at_least_fp32(saved), parameter.shape[2:]).to(saved.dtype)

    def forward(self, grid: Sequence[int]) -> Tensor:
        """``[h, n, N]``."""
        height, width = grid
        sizes = ((self.map, (height, width)), (self.rows, (height, 1)), (self.columns, (1, width)))
        with no_autocast(self.map.device):
            return sum(stretch(bias, size) for bias, size in sizes).flatten(2)


@MODELS.register_module()
class AgentAttention(HeadedAttention):
    """``proj(softmax(q A^T + B_2) softmax(A k^T + B_1) v + DWC(v))``; the agents A are queries averaged over cells of the map.

    Args:
        agents: n, a square number (UserError at the call). The paper has 9, 16, 49, 49 in the four stages of Swin and PVT.
    """

    takes_prefix = False

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], agents: int = 49, qkv_bias: bool = True
    ) -> None:
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias)
        self.agents = agents
        self.gather_bias, self.spread_bias = (AgentBias(num_heads, agents, grid) for _ in range(2))
        self.dwc = LePE(channels, 3)

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=2)
        heads = [split_heads(t, self.num_heads) for t in (query, key, value)]
        agents = pool_landmarks(heads[0], grid, self.agents)
        y = agent(*heads, agents, self.gather_bias(grid), self.spread_bias(grid).mT)
        return self.proj(join_heads(y) + self.dwc(value, grid))
