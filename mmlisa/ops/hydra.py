"""Hydra attention (Bolya et al., "Hydra Attention: Efficient Attention with Many Heads", Eq. 8): as many heads as channels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import check_backend
from .precision import at_least_fp32, no_autocast


def hydra(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """``q / ||q|| * sum_N(k / ||k|| * v)``, the norms over all channels of a token.

    Args:
        query, key, value: ``[B, h, N, d]``; the result does not depend on how the channels are split into heads.
        backend: ``'reference'`` weighs every pair of tokens, channel by channel; ``'auto'`` is linear in N, in fp32 at least.

    Returns:
        ``[B, h, N, d]``.

    Raises:
        ValueError: an unknown backend.
    """
    check_backend(backend)
    dtype = value.dtype
    with no_autocast(query.device):
        query, key, value = (at_least_fp32(t) for t in (query, key, value))
        query, key = (F.normalize(t, dim=(1, 3)) for t in (query, key))
        if backend == "reference":
            y = torch.einsum("bhnd,bhmd,bhmd->bhnd", query, key, value)
        else:
            y = query * (key * value).sum(2, keepdim=True)
        return y.to(dtype)
