"""Injective linear attention (Han et al., "Bridging the Divide: Reconsidering Softmax and Linear Attention")::

    s_ij = q_i k_j^T / (N sqrt(d))
    y_i  = Σ_j (s_ij - mean_m s_im + 1 / N) v_j

The weights of a token sum to 1 by subtraction, not by division.
"""

from torch import Tensor

from .checks import check_backend, check_tokens_of_heads
from .precision import no_autocast, widest


def inline(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """Injective linear attention without its local residual.

    Args:
        query, key, value: ``[B, h, N, d]``; the kernel function, where there is one, is already applied.
        backend: ``'reference'`` builds the N x N attention; ``'auto'`` is linear in N. Both compute in fp32 at least.

    Returns:
        ``[B, h, N, d]``.

    Raises:
        ValueError: shapes that do not fit each other, an unknown backend.
    """
    check_backend(backend)
    check_tokens_of_heads(query, key, value)
    dtype, n = value.dtype, query.shape[2]
    with no_autocast(query.device):
        query, key, value = widest(query, key, value)
        query = query * query.shape[3] ** -0.5
        if backend == "reference":
            similarity = query @ key.mT / n
            return ((similarity - similarity.mean(3, keepdim=True) + 1 / n) @ value).to(dtype)
        total = query @ key.mean(2)[..., None]
        y = query @ (key.mT @ value / n) - (total - 1) * value.mean(2, keepdim=True)
        return y.to(dtype)
