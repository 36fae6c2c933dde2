"""Interactive attention as a token mixer."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlisa.ops import interactive
from mmlisa.registry import MODELS

from .base import HeadedAttention


@MODELS.register_module()
class InteractiveAttention(HeadedAttention):
    """iMHSA (Kang et al., Sec. 3.2): attention through landmarks, with the heads mixed before and after each softmax.

    The mixing matrices start at the identity. They are bare parameters, so that an initialisation of all linear layers leaves
    them alone; small random ones would shrink the output to nothing.

    Args:
        landmarks: L at every resolution, a square number (UserError at the call): 49 in iViT, 64 in the plain ViTs. None attends
            between all tokens, as softmax attention does (quadratic in N; Eq. 5).
        mix_before, mix_after: head mixing before and after the softmaxes. Table 8's rows are ``landmarks`` with both,
            ``landmarks`` with none, and ``landmarks=None`` with both.
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
        super().__init__(channels, num_heads, grid=grid, qkv_bias=qkv_bias, proj_bias=proj_bias)
        self.landmarks = landmarks
        for branch in ("query", "key"):
            for place, mixes in (("before", mix_before), ("after", mix_after)):
                mixes = mixes and (branch == "query" or landmarks is not None)
                self.register_parameter(f"mix_{branch}_{place}", nn.Parameter(torch.eye(num_heads)) if mixes else None)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        return interactive(
            query,
            key,
            value,
            grid,
            self.landmarks,
            mix_query=(self.mix_query_before, self.mix_query_after),
            mix_key=(self.mix_key_before, self.mix_key_after),
        )
