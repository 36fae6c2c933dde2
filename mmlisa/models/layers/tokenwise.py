"""Token-wise layers on a CPU, in pieces that stay in cache."""

from collections.abc import Callable

import torch
from torch import Tensor

# Elements of a piece's widest activation per thread: 1 MiB in fp32, what a core's own cache holds.
PIECE = 2**18


def tokenwise(function: Callable[..., Tensor], *tensors: Tensor, width: int) -> Tensor:
    """``function(*tensors)``, for a function that treats every token alone (an MLP with its norm and residual).

    Inference on a CPU calls it for some tokens at a time: the wide activations of a large image then never leave the cache,
    which is several times faster and needs no memory for them. Everywhere else it is called once.

    Args:
        function: of tensors ``[..., C_i]``, the same leading axes for all, to ``[..., C_out]``.
        tensors: its arguments.
        width: channels of its widest activation.
    """
    x = tensors[0]
    count = max(PIECE * torch.get_num_threads() // width, 1)
    if (
        x.device.type != "cpu"
        or torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or x.shape[:-1].numel() <= count
    ):
        return function(*tensors)
    pieces = zip(*(t.flatten(0, -2).split(count) for t in tensors), strict=True)
    out = None
    for start, piece in zip(range(0, x.shape[:-1].numel(), count), pieces, strict=True):
        result = function(*piece)
        if out is None:
            out = result.new_empty(*x.shape[:-1], result.shape[-1])
        out.view(-1, out.shape[-1])[start : start + count] = result
    return out
