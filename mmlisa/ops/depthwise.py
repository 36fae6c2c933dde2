"""Depthwise convolution over a map, with a fast gradient of large kernels on CPUs.

oneDNN computes the weight gradient of a 3x3 kernel about as fast as the convolution itself, that of a 7x7 kernel fifteen times
slower. The taps of a large kernel are therefore taken in blocks of 3x3, each the gradient of a small kernel on a shifted map::

    dL/dW[c, i, j] = sum_hw g[c, h, w] x[c, h + i, w + j],        i = 3 I + i', j = 3 J + j'

With the rows of all images in one padded, tall map in channels-last memory, a shift is an offset in memory: nothing is copied.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .tracing import is_traced, is_transformed

BLOCK = 3


def depthwise(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Depthwise convolution that keeps the size of the map, zeros around it.

    Args:
        x: ``[B, C, *grid]``, a grid of one to three axes.
        weight: ``[C, 1, *size]``, odd sizes.
        bias: ``[C]``.

    Returns:
        ``[B, C, *grid]``.
    """
    if _is_slow(x, weight):
        return _Depthwise.apply(x, weight, bias)
    return (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3](x, weight, bias, padding="same", groups=weight.shape[0])


def neighbours(x: Tensor) -> list[Tensor]:
    """The nine shifts of a map ``[B, C, H, W]`` by one row and column, with zeros around it, in row-major order."""
    height, width = x.shape[2:]
    x = F.pad(x, (1, 1, 1, 1))
    return [x[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]


def depthwise_per_image(x: Tensor, kernels: Tensor) -> Tensor:
    """Depthwise 3x3 convolution with kernels of each image's own, as a sum of shifts.

    A grouped convolution over B C channels would fix the batch size in an exported graph.

    Args:
        x: ``[B, C, H, W]``.
        kernels: ``[B, C, 9]``, in row-major order.

    Returns:
        ``[B, C, H, W]``.
    """
    return sum(kernels[:, :, i, None, None] * near for i, near in enumerate(neighbours(x)))


def _is_slow(x: Tensor, weight: Tensor) -> bool:
    """Whether PyTorch's own gradient of the weights would be slow."""
    is_eager = torch.is_grad_enabled() and not is_traced() and not is_transformed()
    return (
        is_eager
        and x.ndim == 4
        and len(x) > 0
        and weight.requires_grad
        and x.device.type == "cpu"
        and x.dtype == weight.dtype
        and not torch.is_autocast_enabled("cpu")
        and min(weight.shape[2:]) >= BLOCK
        and max(weight.shape[2:]) > BLOCK
        and all(k % 2 for k in weight.shape[2:])
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _padding(weight: Tensor) -> list[int]:
    return [k // 2 for k in weight.shape[2:]]


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, bias, padding=_padding(weight), groups=weight.shape[0])

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        if torch.is_grad_enabled():  # by create_graph=True; PyTorch's own gradient can be differentiated again
            return _backward(grad, x, weight, _padding(weight), ctx.needs_input_grad)
        d_x, _, d_bias = _backward(grad, x, weight, _padding(weight), (wants_x, False, wants_bias))
        return d_x, weight_gradient(grad, x, weight.shape[2:]) if wants_weight else None, d_bias


def _backward(grad, x, weight, padding, wanted) -> tuple[Tensor | None, ...]:
    groups = weight.shape[0]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, [groups], [1, 1], padding, [1, 1], False, [0, 0], groups, list(wanted)
    )


def weight_gradient(grad: Tensor, x: Tensor, size: torch.Size | tuple[int, int]) -> Tensor:
    """The gradient ``[C, 1, *size]`` of a depthwise kernel, 3x3 taps at a time; ``grad`` and ``x`` are ``[B, C, H, W]``."""
    batch, channels, height, width = x.shape
    blocks = [-(-k // BLOCK) for k in size]
    # Zeros below and to the right also serve the taps beyond the kernel, which the last blocks compute and the return drops.
    tall, wide = height + size[0] - 1, width + size[1] - 1
    spare = BLOCK * blocks[0] + 1
    top, left = size[0] // 2, size[1] // 2
    x_BHWC = x.new_zeros(batch * tall + spare, wide, channels)
    x_BHWC[: batch * tall].view(batch, tall, wide, channels)[:, top : top + height, left : left + width] = x.permute(
        0, 2, 3, 1
    )
    # As wide as a block's output; zero where a shifted row would continue into the next one.
    grad_BHWC = grad.new_zeros(batch * tall, wide - BLOCK + 1, channels)
    grad_BHWC.view(batch, tall, -1, channels)[:, :height, :width] = grad.permute(0, 2, 3, 1)
    rows = batch * tall + BLOCK - 1
    weight = x.new_empty(channels, 1, BLOCK, BLOCK)
    d_weight = x.new_empty(channels, 1, BLOCK * blocks[0], BLOCK * blocks[1])
    flat, grad_map = x_BHWC.flatten(), grad_BHWC[None].permute(0, 3, 1, 2)
    for i in range(0, BLOCK * blocks[0], BLOCK):
        for j in range(0, BLOCK * blocks[1], BLOCK):
            start = (i * wide + j) * channels
            shifted = flat[start : start + rows * wide * channels].view(1, rows, wide, channels).permute(0, 3, 1, 2)
            d_weight[:, :, i : i + BLOCK, j : j + BLOCK] = _backward(
                grad_map, shifted, weight, [0, 0], (False, True, False)
            )[1]
    return d_weight[:, :, : size[0], : size[1]].contiguous()
