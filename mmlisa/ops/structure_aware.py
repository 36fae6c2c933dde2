"""Structure-aware attention in its exact forms, O(N^2): the ancestors of LiSA (journal paper, Sec. 4.1 and 4.2).

Shapes: B batch, h heads, N tokens, c channels of a head, D structural patterns; R are matrices of relative positions
(:func:`mmlisa.ops.toeplitz`), shared by the heads unless they have a head axis.
"""

import torch
from torch import Tensor

from .precision import at_least_fp32, no_autocast


def weighted_attention(query: Tensor, key: Tensor, value: Tensor, relative: Tensor) -> Tensor:
    """Eq. 9: linear attention whose entries are multiplied by relative positions, ``(Q K^T * R) V``.

    Args:
        query, key: ``[B, h, N, c]``, already L2-normalised over ``c``.
        value: ``[B, h, N, c]``.
        relative: ``[N, N]`` or ``[h, N, N]``.

    Returns:
        ``[B, h, N, c]``.
    """
    with no_autocast(query.device):
        query, key, value, relative = (at_least_fp32(t) for t in (query, key, value, relative))
        return (query @ key.transpose(-1, -2) * relative) @ value


def structure_aware(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    relative_a: Tensor,
    relative_b: Tensor,
    bias: Tensor,
    bias_a: Tensor | None = None,
) -> Tensor:
    """Eq. 10 (dot-product correlation) and Eq. 11 (Hadamard correlation), in the order of the paper's Fig. 6.

    Args:
        query, key: ``[B, h, N, c]``, already L2-normalised over ``c``.
        value: ``[B, h, N, c]``.
        relative_a: R^a; ``[D, N, N]`` for Eq. 10, ``[c, D, N, N]`` for Eq. 11.
        relative_b: R^b, ``[D, N, N]``.
        bias: B, ``[c, D]``.
        bias_a: B^a of the first version, ``[c, D]``, or None.

    Returns:
        ``[B, h, N, c]``.
    """
    with no_autocast(query.device):
        query, key, value, relative_a, relative_b, bias = (
            at_least_fp32(t) for t in (query, key, value, relative_a, relative_b, bias)
        )
        encode = "bhnc,din->bhcdi" if relative_a.ndim == 3 else "bhnc,cdin->bhcdi"
        ga = torch.einsum(encode, key, relative_a)
        if bias_a is not None:
            ga = ga + at_least_fp32(bias_a)[..., None]
        gb = torch.einsum("bhjv,dij->bhvdi", value, relative_b)
        pattern = torch.einsum("bhic,bhcdi->bhdi", query, ga)
        return torch.einsum("bhdi,bhvdi->bhiv", pattern, gb + bias[..., None])
