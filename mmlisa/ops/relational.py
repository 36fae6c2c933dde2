"""Relational self-attention (Kim et al., "Relational Self-Attention", NeurIPS 2021) with a global receptive field.

Shapes: B batch, h heads, N tokens, c channels of a head; relative positions (:func:`mmlisa.ops.toeplitz`) are shared by the
heads.
"""

import torch
from torch import Tensor

from .precision import at_least_fp32, no_autocast


def relational(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    basic: Tensor,
    encode: Tensor,
    decode: Tensor,
    context: Tensor,
) -> Tensor:
    """Relational self-attention: dynamic kernels from query-key relations, over a context of value-value relations.

    ``y_i = sum_j kernel_ij (v_j + v_j V^T G_i)`` with ``kernel_ij = q_i P_ij + sum_d (sum_n (q_i * k_n) H1_ind) H2_ijd``.

    Args:
        query, key, value: ``[B, h, N, c]``.
        basic: P, ``[c, N, N]``.
        encode: H1, ``[c, D, N, N]``, the Hadamard relations of a query as D numbers.
        decode: H2, ``[D, N, N]``.
        context: G, ``[c, N, N]``.

    Returns:
        ``[B, h, N, c]``.
    """
    with no_autocast(query.device):
        query, key, value, basic, encode, decode, context = (
            at_least_fp32(t) for t in (query, key, value, basic, encode, decode, context)
        )
        pattern = torch.einsum("bhic,bhcdi->bhdi", query, torch.einsum("bhnc,cdin->bhcdi", key, encode))
        kernel = torch.einsum("bhic,cij->bhij", query, basic) + torch.einsum("bhdi,dij->bhij", pattern, decode)
        y = kernel @ value
        return y + torch.einsum("bhiv,bhivw->bhiw", y, torch.einsum("bhjv,wij->bhivw", value, context))
