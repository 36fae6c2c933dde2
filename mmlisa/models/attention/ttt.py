"""Test-time training (Han et al., "ViT³"); without prefix tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlisa.models.layers.tokens import to_map, to_tokens
from mmlisa.ops import beyond_fp16, rotary, ttt_convolution, ttt_glu
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens, join_heads, split_heads


@MODELS.register_module()
class TTTAttention(nn.Module):
    """A gated linear unit for each head, and a 3x3 convolution of d more channels.

    Both are trained on the image's keys and values by one step of gradient descent, and applied to its queries.

    Args:
        rotary: rotary positions of the first branch's queries and keys, over all C channels.
    """

    def __init__(
        self, channels: int, num_heads: int, *, grid: Sequence[int], rotary: bool = False, qkv_bias: bool = True
    ) -> None:
        super().__init__()
        width = check_heads(channels, num_heads)
        self.num_heads, self.rotary = num_heads, rotary
        self.split = (channels,) * 3 + (width,) * 3
        self.qkv = nn.Linear(channels, 3 * (channels + width), bias=qkv_bias)
        self.w1, self.w2 = (nn.Parameter(torch.empty(1, num_heads, width, width)) for _ in range(2))
        self.w3 = nn.Parameter(torch.empty(width, 1, 3, 3))
        self.proj = nn.Linear(channels + width, channels)
        for weight in (self.w1, self.w2, self.w3):
            nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        query, key, value, *convolved = self.qkv(x).split(self.split, dim=2)
        if self.rotary:
            query, key = rotary(query, grid), rotary(key, grid)
        heads = (split_heads(t, self.num_heads) for t in (query, key, value))
        maps = (to_map(t, grid) for t in convolved)
        # A gated linear unit squares the scale of its input: the results leave the range of fp16.
        context, dtype = beyond_fp16(x, self)
        with context:
            y1 = join_heads(ttt_glu(*(t.to(dtype) for t in heads), self.w1[0], self.w2[0]))
            y2 = to_tokens(ttt_convolution(*(t.to(dtype) for t in maps), self.w3))
            return self.proj(torch.cat([y1, y2], dim=2))
