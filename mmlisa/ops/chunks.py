"""How many tokens to compute at a time in inference on a CPU, so that wide activations stay in cache."""

import torch
from torch import Tensor

# Elements of a chunk's widest activation per thread: 4 MiB in fp32. Larger ones leave the cache, smaller ones make slow matrix
# products.
CHUNK = 2**20
_enabled = True


def set_cpu_chunking(enabled: bool) -> None:
    """Turns computing in chunks on or off for this process; it is on at first and never changes a result beyond rounding."""
    global _enabled
    _enabled = enabled


def chunk_length(x: Tensor, width: int) -> int:
    """How many of the tokens ``x: [..., C]`` to compute at a time, where each needs ``width`` numbers.

    All of them on other devices, where gradients are recorded, and in a trace, whose graph would keep the chunks of one size.
    """
    total = x.shape[:-1].numel()
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if not _enabled or x.device.type != "cpu" or torch.is_grad_enabled() or is_traced:
        return total
    chunks = max(-(-total * width // (CHUNK * torch.get_num_threads())), 1)
    return -(-total // chunks)  # chunks of one size: a small last one would make slow matrix products
