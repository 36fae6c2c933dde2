"""Operators of one shape, a kernel between a shared projection and an output projection; the kernels are data."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa import ops
from mmlisa.registry import MODELS

from .builder import check_heads


class HeadPool(nn.Module):
    """Depthwise convolution over the grid, shared by the heads, then LayerNorm, on ``[B, h, N, d]`` (MViTv2's pooling).

    Prefix tokens pass by the convolution, not by the norm.
    """

    def __init__(self, head_dims: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(head_dims, head_dims, 3, stride, padding=1, groups=head_dims, bias=False)
        self.norm = nn.LayerNorm(head_dims)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        batch, heads, n, _ = x.shape
        prefix, x = x.split([n - prod(grid), prod(grid)], dim=2)
        x = self.conv(x.flatten(0, 1).transpose(1, 2).unflatten(2, grid))
        x = x.flatten(2).transpose(1, 2).unflatten(0, (batch, heads))
        return self.norm(torch.cat([prefix.to(x.dtype), x], dim=2))


class KernelAttention(nn.Module):
    """Base of the operators ``proj(attend(q, k, v) (+ DConv(v)) (+ q))`` with ``q, k, v = pool(qkv(x))``.

    Args:
        embed_dims: channels C.
        num_heads: heads h.
        grid: the contract's; nothing here depends on the pretraining grid.
        head_dims: width d of a head, C / h where None.
        qkv_bias: bias in the query, key and value projection.
        pooled: MViTv2's form without its strides: query, key and value each pass a :class:`HeadPool`, and the query is
            added to what was attended.
        conv_size: length of DConv, a depthwise convolution of each head's values along the flattened tokens; None for none.

    Raises:
        ValueError: heads that do not divide the channels (without ``head_dims``), or an even ``conv_size``.
    """

    # Kernels whose values grow with the cube of the tokens leave half precision's range: they run as a whole in fp32.
    full_precision: ClassVar[bool] = False

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        head_dims: int | None = None,
        qkv_bias: bool = True,
        pooled: bool = False,
        conv_size: int | None = None,
    ) -> None:
        super().__init__()
        if conv_size is not None and conv_size % 2 == 0:
            raise ValueError(f"conv_size={conv_size}; it must be odd, or None for no convolution")
        self.num_heads = num_heads
        width = num_heads * (head_dims or check_heads(embed_dims, num_heads))
        self.qkv = nn.Linear(embed_dims, 3 * width, bias=qkv_bias)
        self.pool = nn.ModuleList(HeadPool(width // num_heads) for _ in range(3)) if pooled else None
        self.dconv = None
        if conv_size:
            self.dconv = nn.Conv2d(
                num_heads, num_heads, (conv_size, 1), padding=(conv_size // 2, 0), groups=num_heads, bias=False
            )
        self.proj = nn.Linear(width, embed_dims)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``[B, h, N, d]`` each -> ``[B, h, N, d]``."""
        raise NotImplementedError

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``x: [B, N, C]``, prefix tokens first, then those of ``grid`` -> ``[B, N, C]``."""
        if x.shape[1] < prod(grid):
            raise ValueError(f"the grid {tuple(grid)} has {prod(grid)} tokens, but x has {x.shape[1]}")
        if self.full_precision:
            with ops.no_autocast(x.device):
                return self._mix(x.to(self.qkv.weight.dtype), grid)
        return self._mix(x, grid)

    def _mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        batch, n, _ = x.shape
        qkv = self.qkv(x).reshape(batch, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        if self.pool is not None:
            query, key, value = (pool(t, grid) for pool, t in zip(self.pool, (query, key, value), strict=True))
        y = self.attend(query, key, value)
        if self.dconv is not None:
            y = y + self.dconv(value)
        if self.pool is not None:
            y = y + query
        return self.proj(y.transpose(1, 2).reshape(batch, n, -1))


@MODELS.register_module()
class PooledSoftmaxAttention(KernelAttention):
    """Softmax attention, quadratic in N, in the pooled form: what LCNet-ViT and ESNet-ViT have before they are castled."""

    def __init__(self, embed_dims: int, num_heads: int, **options) -> None:
        super().__init__(embed_dims, num_heads, pooled=True, **options)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value)


@MODELS.register_module()
class CosineAttention(KernelAttention):
    """Table 5, "Cosine": :func:`mmlisa.ops.cosine_attention`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.cosine_attention(query, key, value)


@MODELS.register_module()
class MeanCenteredAttention(KernelAttention):
    """Table 5, "MC": :func:`mmlisa.ops.mean_centered_attention`.

    Args:
        axis: over which the mean is taken, ``'tokens'`` or ``'channels'``.
        **options: see :class:`KernelAttention`.
    """

    full_precision = True

    def __init__(self, embed_dims: int, num_heads: int, *, axis: str = "tokens", **options) -> None:
        super().__init__(embed_dims, num_heads, **options)
        if axis not in ops.MC_AXES:
            raise ValueError(f"axis is {axis!r}; it must be one of {sorted(ops.MC_AXES)}")
        self.axis = axis

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.mean_centered_attention(query, key, value, self.axis)


@MODELS.register_module()
class ReLUSoftmaxAttention(KernelAttention):
    """Table 5, "ReLU-S": :func:`mmlisa.ops.relu_softmax_attention`."""

    full_precision = True

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.relu_softmax_attention(query, key, value)


@MODELS.register_module()
class ReLUExpAttention(KernelAttention):
    """Table 5, "ReLU-E": :func:`mmlisa.ops.relu_exp_attention`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.relu_exp_attention(query, key, value)


@MODELS.register_module()
class SoftmaxKernelAttention(KernelAttention):
    """Table 5, "Softmax": :func:`mmlisa.ops.softmax_kernel_attention`."""

    full_precision = True

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.softmax_kernel_attention(query, key, value)
