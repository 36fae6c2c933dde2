"""Interactive attention as a token mixer."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlisa.ops import interactive_softmax, pool_landmarks
from mmlisa.registry import MODELS

from .base import check_heads, count_prefix
from .heads import join_heads, split_heads


@MODELS.register_module()
class InteractiveAttention(nn.Module):
    """iMHSA (Kang et al., Sec. 3.2): attention through landmarks, with the heads mixed before and after each softmax.

    The mixing matrices start at the identity. They are bare parameters, so that an initialisation of all linear layers leaves
    them alone; small random ones would shrink the output to nothing.

    Args:
        channels: channels C.
        num_heads: heads h.
        grid: the pretraining grid; nothing here depends on it.
        landmarks: L, a square number, at every resolution: 49 in iViT, 64 in the plain ViTs. None attends between all tokens,
            as softmax attention does (quadratic in N; Eq. 5).
        mix_before, mix_after: head mixing before and after the softmaxes. Table 8's rows are ``landmarks`` with both,
            ``landmarks`` with none, and ``landmarks=None`` with both.
        qkv_bias, proj_bias: bias in the projections.

    Raises:
        ValueError: heads that do not divide the channels; at the call, landmarks that are not a square number, or fewer tokens
            than the grid has.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        landmarks: int | None = 49,
        mix_before: bool = True,
        mix_after: bool = True,
        qkv_bias: bool = False,
        proj_bias: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        check_heads(channels, num_heads)
        self.landmarks = landmarks
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels, bias=proj_bias)
        for branch in ("query",) if landmarks is None else ("query", "key"):
            for place, mixes in (("before", mix_before), ("after", mix_after)):
                self.register_parameter(f"mix_{branch}_{place}", nn.Parameter(torch.eye(num_heads)) if mixes else None)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]`` -> ``[B, N, C]``; N may exceed prod(grid) by leading prefix tokens."""
        count_prefix(x, grid)
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        mix_query = (self.mix_query_before, self.mix_query_after)
        if self.landmarks is None:
            y = self.attend(query, key, value, mix_query)
        else:
            query_landmarks, key_landmarks = (pool_landmarks(t, grid, self.landmarks) for t in (query, key))
            context = self.attend(query_landmarks, key, value, (self.mix_key_before, self.mix_key_after))
            y = self.attend(query, key_landmarks, context, mix_query)
        return self.proj(join_heads(y))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mix: tuple[Tensor | None, Tensor | None]) -> Tensor:
        """``[B, h, n, d]``, ``[B, h, m, d]`` twice -> ``[B, h, n, d]``: see :func:`mmlisa.ops.interactive_softmax`."""
        return interactive_softmax(query, key, value, mix=mix)
