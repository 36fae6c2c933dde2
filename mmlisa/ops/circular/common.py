"""Helpers of LiSA's backends."""

from collections.abc import Callable

import torch
from torch import Tensor

# The function that a backend prepares for one grid. It encodes, (query, key), each ``[M, c, *grid]``, -> s ``[M, D, *grid]``, or
# mixes, (s, value) -> ``[M, c, *grid]``.
Side = Callable[[Tensor, Tensor], Tensor]


def chunks(x: Tensor, per_head: int, limit: dict[str, int]) -> list[slice]:
    """Split the M heads of ``x: [M, ...]`` into slices of at least one head.

    A temporary with ``per_head`` numbers for each head then has at most ``limit[device]`` numbers.
    """
    size = max(1, limit["cuda" if x.is_cuda else "cpu"] // per_head)
    starts = range(0, x.shape[0], size)
    return list(map(slice, starts, range(size, x.shape[0] + size, size)))


def empty(x: Tensor) -> Tensor:
    """Return an uninitialised, contiguous tensor like ``x``."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def zeros(x: Tensor) -> Tensor:
    """Return contiguous zeros like ``x``: the strides that :func:`empty_gradients` promises to compilers."""
    return torch.zeros_like(x, memory_format=torch.contiguous_format)


def empty_gradients(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return uninitialised gradients of ``inputs``: what tracers take for the results of a backward operator."""
    return tuple(empty(x) for x in inputs)


def save_tensors(ctx, inputs, output) -> None:
    """Save the four tensors that a backward operator needs; they are the first inputs of the forward operator."""
    ctx.save_for_backward(*inputs[:4])
