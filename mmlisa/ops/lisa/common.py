"""Helpers of LiSA's backends."""

import torch
from torch import Tensor

# The Triton kernel keeps the spectra of its rows in registers, which limits the size of the grid.
TRITON_MAX_TOKENS = 256


def chunks(x: Tensor, per_head: int, limit: dict[str, int]) -> list[slice]:
    """Slices of the heads of ``x: [M, ...]`` with at most ``limit[device]`` numbers, ``per_head`` each, in a temporary."""
    size = max(1, limit["cuda" if x.is_cuda else "cpu"] // per_head)
    return [slice(start, start + size) for start in range(0, x.shape[0], size)]


def empty(x: Tensor) -> Tensor:
    """Return an uninitialised, contiguous tensor like ``x``."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def empty_gradients(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients' shapes of a backward operator, for tracers."""
    return tuple(empty(x) for x in inputs)


def save_tensors(ctx, inputs, output) -> None:
    """Save the four tensors that a backward operator needs; they are the first inputs of the forward operator."""
    ctx.save_for_backward(*inputs[:4])
