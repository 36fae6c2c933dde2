"""Efficient attention (Shen et al., "Efficient Attention: Attention with Linear Complexities", Sec. 3, softmax normalisation)."""

from torch import Tensor

from .checks import check_backend
from .precision import at_least_fp32, no_autocast


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
    check_backend(backend)
    dtype = value.dtype
    with no_autocast(query.device):
        query, key, value = (at_least_fp32(t) for t in (query, key, value))
        query, key = query.softmax(3), key.softmax(2).transpose(2, 3)
        y = (query @ key) @ value if backend == "reference" else query @ (key @ value)
        return y.to(dtype)
