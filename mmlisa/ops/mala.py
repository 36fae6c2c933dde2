"""Magnitude-aware linear attention (Fan et al., "Rectifying Magnitude Neglect in Linear Attention").

With φ(x) = elu(x) + 1, Q = φ(q), K = φ(k) and the rotation R of :func:`mmlisa.ops.rotary` within each head::

    s_ij = Q_i K_j^T / (N sqrt(d)),   S_i = Σ_j s_ij
    y_i  = (1 + 1 / (S_i + 1e-6)) Σ_j s'_ij v_j - S_i mean_j v_j        s' = s of R Q and R K

Without the rotation the weights of a token sum to 1. They may be negative, and they depend on the length of the query.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from .checks import check_backend, check_tokens_of_heads
from .precision import no_autocast, widest
from .rotary import rotary

EPS = 1e-6


def mala(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], *, backend: str = "auto") -> Tensor:
    """Magnitude-aware linear attention without its convolution and gate.

    Args:
        query, key, value: ``[B, h, N, d]``, projected; prefix tokens before those of the grid have no position.
        grid: (H, W).
        backend: ``'reference'`` builds the N x N attention; ``'auto'`` is linear in N. Both compute in fp32 at least.

    Returns:
        ``[B, h, N, d]``.

    Raises:
        ValueError: shapes that do not fit each other, d not a multiple of 4, an unknown backend.
    """
    check_backend(backend)
    check_tokens_of_heads(query, key, value)
    dtype, n, scale = value.dtype, query.shape[2], query.shape[3] ** -0.5
    with no_autocast(query.device):
        query, key, value = widest(query, key, value)
        query, key = (F.elu(query) + 1) * scale, F.elu(key) + 1
        turned_query, turned_key = rotary(query, grid), rotary(key, grid)
        total = query @ key.mean(2)[..., None]
        beta = 1 + 1 / (total + EPS)
        if backend == "reference":
            weights = beta * (turned_query @ turned_key.mT / n) - total / n
            return (weights @ value).to(dtype)
        y = beta * (turned_query @ (turned_key.mT @ value / n)) - total * value.mean(2, keepdim=True)
        return y.to(dtype)
