"""Token-wise layers on a CPU, in pieces that stay in cache."""

from collections.abc import Callable

import torch
from torch import Tensor

# Elements of a piece's widest activation per thread: 2 MiB in fp32. More does not stay in cache, less makes slow matrix products.
PIECE = 2**19


def tokens_at_once(x: Tensor, width: int) -> int:
    """How many tokens of ``x: [..., C]`` to treat at a time, so that ``width`` channels of each stay in cache.

    All of them where it makes no difference, or where a loop would be in the way: on a GPU, with gradients, in a trace.
    """
    total = x.shape[:-1].numel()
    if x.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return total
    return min(max(PIECE * torch.get_num_threads() // width, 1), total)


def tokenwise(function: Callable[[Tensor], Tensor], x: Tensor, *, width: int) -> Tensor:
    """``function(x)``, for a function that treats every token alone (an MLP with its norm and residual).

    Inference on a CPU calls it for some tokens at a time and puts the result over ``x``, which must be the caller's own: the
    wide activations of a large image then never leave the cache, which is several times faster and needs no memory. Everywhere
    else it is called once.

    Args:
        function: ``[..., C]`` -> ``[..., C]``, of the same dtype.
        x: its argument.
        width: channels of its widest activation.
    """
    count = tokens_at_once(x, width)
    if count == x.shape[:-1].numel():
        return function(x)
    x = x.contiguous()
    for piece in x.view(-1, x.shape[-1]).split(count):
        piece.copy_(function(piece))
    return x


def add_residual(x: Tensor, branch: Tensor) -> Tensor:
    """``x + branch``; without gradients in the memory of ``branch``, which must be the caller's own.

    On a CPU, touching the pages of a new large map takes longer than the sum.
    """
    if torch.is_grad_enabled() or branch.dtype != x.dtype:
        return x + branch
    return branch.add_(x)
