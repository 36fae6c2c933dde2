"""Rank-augmented linear attention (Fan et al., "Breaking the Low-Rank Dilemma of Linear Attention").

With φ(x) = elu(x) + 1, Q = φ(q), K = φ(k) and the rotation R of :func:`mmlisa.ops.rotary` within each head::

    α_j = N softmax_j(mean_i(Q_i) K_j^T / sqrt(d))
    y_i = (R Q)_i mean_j (R α K)_j^T v_j / (Q_i mean_j α_j K_j^T + 1e-6)
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from .checks import check_backend, check_tokens_of_heads
from .mila import rotated_attention
from .precision import no_autocast, widest
from .rotary import rotary


def rala(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], *, backend: str = "auto") -> Tensor:
    """Rank-augmented linear attention without its convolution and gate.

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
    dtype = value.dtype
    with no_autocast(query.device):
        query, key, value = widest(query, key, value)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        similarity = key @ query.mean(2)[..., None] / query.shape[3] ** 0.5
        key = key * (key.shape[2] * similarity.softmax(2))
        return rotated_attention(query, key, rotary(query, grid), rotary(key, grid), value, backend).to(dtype)
