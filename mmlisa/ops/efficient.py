"""Efficient attention (Shen et al., "Efficient Attention: Attention with Linear Complexities", Sec. 3, softmax normalisation)."""

import torch
from torch import Tensor

from .precision import no_autocast


def efficient(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """``softmax_d(q) (softmax_N(k)^T v)`` per head.

    Args:
        query, key, value: ``[B, h, N, d]``.
        backend: ``'reference'`` builds the N x N attention; ``'auto'`` is linear in N, in fp32 at least.

    Returns:
        ``[B, h, N, d]``.

    Raises:
        ValueError: an unknown backend.
    """
    if backend not in ("auto", "reference"):
        raise ValueError(f"backend is {backend!r}; it must be 'auto' or 'reference'")
    dtype = value.dtype
    with no_autocast(query.device):
        precise = torch.promote_types(dtype, torch.float32)
        query, key, value = (t.to(precise) for t in (query, key, value))
        query, key = query.softmax(3), key.softmax(2).transpose(2, 3)
        y = (query @ key) @ value if backend == "reference" else query @ (key @ value)
        return y.to(dtype)
