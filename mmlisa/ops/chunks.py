"""How many tokens to compute at a time in inference on a CPU, so that wide activations stay in cache."""

from math import prod

import torch
from torch import Tensor

from .tracing import is_traced

# Elements of a chunk's widest activation per thread: 4 MiB in fp32. Larger ones leave the cache, smaller ones make slow matrix
# products.
CHUNK = 2**20
_enabled = True


def set_cpu_chunking(enabled: bool) -> None:
    """Turns computing in chunks on or off for this process; it is on at first and never changes a result beyond rounding."""
    global _enabled
    _enabled = enabled


def is_cpu_inference(x: Tensor) -> bool:
    """Whether ``x`` is on a CPU and neither gradients nor a trace are recorded.

    The graph of a trace would keep what was chosen for one size.
    """
    return x.device.type == "cpu" and not torch.is_grad_enabled() and not is_traced()


def is_chunked(x: Tensor) -> bool:
    """Whether large activations are computed in chunks: in inference on a CPU, unless it was turned off."""
    return _enabled and is_cpu_inference(x)


def chunk_length(x: Tensor, width: int) -> int:
    """How many of the tokens ``x: [..., C]`` to compute at a time, where each needs ``width`` numbers."""
    total = prod(x.shape[:-1])
    if not is_chunked(x):
        return total
    chunks = max(-(-total * width // (CHUNK * torch.get_num_threads())), 1)
    return -(-total // chunks)  # chunks of one size: a small last one would make slow matrix products
