"""LiSA (Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding")."""

from collections.abc import Sequence
from functools import partial
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.layers.grids import GridCache, ResizeOnLoad
from mmlisa.models.layers.tokens import to_map, to_tokens
from mmlisa.ops import LiSAKernels, resize_kernel
from mmlisa.ops.context import out_of_fp16
from mmlisa.registry import MODELS

from .base import check_heads, check_tokens


class ChannelMajorLinear(nn.Linear):
    """``nn.Linear`` on ``[B, N, C]`` whose output ``[B, N, C_out]`` lies in memory as ``[B, C_out, N]``, a map per channel.

    The operator reads its maps as they are; transposing them would cost as much as the product itself.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.expand(x.shape[0], -1, -1)
        if self.bias is None:
            return torch.bmm(weight, x.mT).mT
        return torch.baddbmm(self.bias[:, None], weight, x.mT).mT


@MODELS.register_module()
class LiSA(ResizeOnLoad):
    """Lightweight structure-aware attention (journal version, Eq. 14 and Fig. 7); all heads share the kernels.

    Args:
        num_patterns: structural patterns D.
        kernel_size: None for kernels of the whole grid; an odd number k for local ones, k taps along each axis (Table 3d). An
            even one is a UserError.
        padding: ``'circular'``, or, around local kernels, ``'zeros'`` as in an ordinary convolution; else a UserError.
        norm: LayerNorm before the output projection (journal); the first version has none.
        encoding_bias: the bias B^a of the first version, added to the encoded key.
        backend: see :func:`mmlisa.ops.lisa`.
    """

    on_grid = ("kernel_a", "kernel_b")

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        num_patterns: int = 8,
        kernel_size: int | None = None,
        padding: str = "circular",
        qkv_bias: bool = True,
        norm: bool = True,
        encoding_bias: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        if kernel_size is not None:
            if kernel_size % 2 == 0:
                raise UserError(f"kernel_size={kernel_size}; it must be odd")
            grid = (kernel_size,) * len(grid)  # resampled to the tokens' grid, it is zero outside of the window
        if padding not in ("circular", "zeros") or (padding == "zeros" and kernel_size is None):
            raise UserError(f"padding={padding!r}; it must be 'circular', or 'zeros' beside a kernel_size")
        self.num_heads, self.backend = num_heads, backend
        self.local = kernel_size is not None
        # A circular kernel of k taps that reaches over the border finds these k // 2 zeros, on either border.
        self.zeros = kernel_size // 2 if padding == "zeros" else 0
        width = check_heads(channels, num_heads)
        self.qkv = ChannelMajorLinear(channels, 3 * channels, bias=qkv_bias)
        self.kernel_a = nn.Parameter(torch.empty(width, num_patterns, *grid))
        self.kernel_b = nn.Parameter(torch.empty(num_patterns, *grid))
        self.bias = nn.Parameter(torch.empty(width, num_patterns))
        self.bias_a = nn.Parameter(torch.zeros(width, num_patterns)) if encoding_bias else None
        self.norm = nn.LayerNorm(channels) if norm else nn.Identity()
        self.proj = nn.Linear(channels, channels)
        self._prepared = GridCache()
        # The papers do not say. Without a norm behind the operator, white noise of this scale keeps the scale of the tokens. With
        # a norm, small kernels learn sooner (docs/lisa.md).
        std = 0.02 if norm else prod(grid) ** -0.5
        nn.init.normal_(self.kernel_a, std=std)
        nn.init.normal_(self.kernel_b, std=std)
        nn.init.trunc_normal_(self.bias, std=0.02)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid)
        qkv = self.qkv(x)
        query, key, value = out_of_fp16(to_map(qkv, grid)).unflatten(1, (3, self.num_heads, -1)).unbind(1)
        query, key = _normalize(query), _normalize(key)
        if self.zeros:
            query, key, value = (F.pad(t, (0, self.zeros) * len(grid)) for t in (query, key, value))
        y = self._kernels(tuple(query.shape[3:]))(query, key, value)
        if self.zeros:
            y = y[(..., *(slice(n) for n in grid))]
        y = to_tokens(y.flatten(1, 2)).to(qkv.dtype).contiguous()
        return self.proj(self.norm(y))

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        # Local kernels of another size are of another model.
        return saved if self.local else resize_kernel(saved, tuple(self.kernel_b.shape[1:]))

    def _kernels(self, grid: tuple[int, ...]) -> LiSAKernels:
        """Return the kernels prepared for ``grid``, from the cache if no gradient is required."""
        parameters = [self.kernel_a, self.kernel_b, self.bias, *([] if self.bias_a is None else [self.bias_a])]
        prepare = partial(LiSAKernels.prepare, *parameters, grid=grid, backend=self.backend)
        return self._prepared.get((grid, self.backend), parameters, prepare)


def _normalize(x: Tensor) -> Tensor:
    """``[B, h, c, *grid]`` with norm 1 over c: ``F.normalize``, whose norm over an inner axis is eight times slower."""
    return x * x.square().sum(2, keepdim=True).clamp_min(1e-24).rsqrt()
