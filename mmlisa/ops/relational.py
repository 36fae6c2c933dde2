"""Lambda convolution (Bello, 2021) and relational self-attention (Kim et al., 2021) with global receptive fields.

Shapes: B batch, h heads, N tokens, c channels of a head; relative positions (:func:`mmlisa.ops.toeplitz`) are shared by the
heads.
"""

import torch
from torch import Tensor

from .precision import no_autocast, widest


def lambda_convolution(query: Tensor, key: Tensor, value: Tensor, relative: Tensor) -> Tensor:
    """Every query is multiplied by a matrix made of its context: ``y_i = q_i (softmax(K)^T V + E_i^T V)``.

    Args:
        query, key, value: ``[B, h, N, c]``; the softmax runs over the tokens.
        relative: ``[c, N, N]``, E: entry (k, i, j) weighs token j in row k of the matrix of token i.

    Returns:
        ``[B, h, N, c]``.
    """
    with no_autocast(query.device):
        query, key, value, relative = widest(query, key, value, relative)
        content = key.softmax(dim=2).transpose(2, 3) @ value
        position = torch.einsum("bhjv,kij->bhikv", value, relative)
        return query @ content + torch.einsum("bhik,bhikv->bhiv", query, position)


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
        query, key, value, basic, encode, decode, context = widest(query, key, value, basic, encode, decode, context)
        pattern = torch.einsum("bhic,bhcdi->bhdi", query, torch.einsum("bhnc,cdin->bhcdi", key, encode))
        kernel = torch.einsum("bhic,cij->bhij", query, basic) + torch.einsum("bhdi,dij->bhij", pattern, decode)
        y = kernel @ value
        return y + torch.einsum("bhiv,bhivw->bhiw", y, torch.einsum("bhjv,wij->bhivw", value, context))
