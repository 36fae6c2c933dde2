"""MILA's linear attention (Han et al., "Demystify Mamba in Vision: A Linear Attention Perspective").

With φ(x) = elu(x) + 1 and the rotation R of :func:`mmlisa.ops.rotary`, which acts before the split into heads::

    y_i = (R φ(q))_i mean_j (R φ(k))_j^T v_j / (φ(q)_i mean_j φ(k)_j^T + 1e-6)

Only the numerator is rotated, so weights may be negative and need not sum to 1.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from .checks import check_backend, check_tokens_of_heads
from .precision import no_autocast, widest
from .rotary import rotary

EPS = 1e-6


def mila(query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int], *, backend: str = "auto") -> Tensor:
    """MILA's linear attention without its convolution.

    Args:
        query, key, value: ``[B, h, N, d]``, projected; prefix tokens before those of the grid have no position.
        grid: (H, W).
        backend: ``'reference'`` builds the N x N attention; ``'auto'`` is linear in N. Both compute in fp32 at least.

    Returns:
        ``[B, h, N, d]``.

    Raises:
        ValueError: shapes that do not fit each other, h d not a multiple of 4, an unknown backend.
    """
    check_backend(backend)
    check_tokens_of_heads(query, key, value)
    dtype, heads = value.dtype, query.shape[1]
    with no_autocast(query.device):
        query, key, value = widest(query, key, value)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        # The frequencies run over the channels of all heads.
        turned_query, turned_key = (
            rotary(t.transpose(1, 2).flatten(2), grid).unflatten(2, (heads, -1)).transpose(1, 2) for t in (query, key)
        )
        return rotated_attention(query, key, turned_query, turned_key, value, backend).to(dtype)


def rotated_attention(
    query: Tensor, key: Tensor, turned_query: Tensor, turned_key: Tensor, value: Tensor, backend: str
) -> Tensor:
    """Linear attention whose numerator takes the rotated query and key, ``[B, h, N, d]`` each."""
    n = key.shape[2]
    total = query @ key.mean(2)[..., None] + EPS
    if backend == "reference":
        return turned_query @ turned_key.mT / n @ value / total
    return turned_query @ (turned_key.mT @ value / n) / total
