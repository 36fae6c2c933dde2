"""Operators with a learned number for each pair of tokens, O(N²): structure-aware attention, lambda convolution, RSA.

Shapes: B batch, h heads, N tokens, c channels of a head, D structural patterns; the results are ``[B, h, N, c]``. Matrices of
relative positions (:func:`mmlisa.ops.toeplitz`) are shared by the heads unless they have a head axis.
"""

import torch
from torch import Tensor

from .context import operator


@operator
def weighted_attention(query: Tensor, key: Tensor, value: Tensor, relative: Tensor) -> Tensor:
    """Linear attention whose entries are multiplied by relative positions, ``(Q Kᵀ * R) V`` (LiSA's journal paper, Eq. 9).

    Query and key are L2-normalised already; relative positions are ``[N, N]`` or ``[h, N, N]``.
    """
    return (query @ key.mT * relative) @ value


@operator
def structure_aware(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    relative_a: Tensor,
    relative_b: Tensor,
    bias: Tensor,
    bias_a: Tensor | None = None,
) -> Tensor:
    """Eq. 10 (dot-product correlation) and Eq. 11 (Hadamard correlation) of LiSA's journal paper, in the order of its Fig. 6.

    Args:
        query, key, value: ``[B, h, N, c]``; query and key L2-normalised already.
        relative_a: R^a; ``[D, N, N]`` for Eq. 10, ``[c, D, N, N]`` for Eq. 11.
        relative_b: R^b, ``[D, N, N]``.
        bias: B, ``[c, D]``.
        bias_a: B^a of the first version, ``[c, D]``, or None.
    """
    encode = "bhnc,din->bhcdi" if relative_a.ndim == 3 else "bhnc,cdin->bhcdi"
    ga = torch.einsum(encode, key, relative_a)
    if bias_a is not None:
        ga = ga + bias_a[..., None]
    gb = torch.einsum("bhjv,dij->bhvdi", value, relative_b)
    pattern = torch.einsum("bhic,bhcdi->bhdi", query, ga)
    return torch.einsum("bhdi,bhvdi->bhiv", pattern, gb + bias[..., None])


@operator
def lambda_convolution(query: Tensor, key: Tensor, value: Tensor, relative: Tensor) -> Tensor:
    """Multiply every query by a matrix made of its context: ``y_i = q_i (softmax(K)ᵀ V + E_iᵀ V)``.

    Bello, "LambdaNetworks", 2021, with a global receptive field. The softmax runs over the tokens. ``relative`` is E,
    ``[c, N, N]``: entry (k, i, j) weighs token j in row k of the matrix of token i.
    """
    content = key.softmax(dim=2).mT @ value
    position = torch.einsum("bhjv,kij->bhikv", value, relative)
    return query @ content + torch.einsum("bhik,bhikv->bhiv", query, position)


@operator
def relational(
    query: Tensor, key: Tensor, value: Tensor, basic: Tensor, encode: Tensor, decode: Tensor, context: Tensor
) -> Tensor:
    """Relational self-attention: dynamic kernels from query-key relations, over a context of value-value relations.

    Kim et al., "Relational Self-Attention", NeurIPS 2021, with a global receptive field:
    ``y_i = sum_j kernel_ij (v_j + v_j V^T G_i)`` with ``kernel_ij = q_i P_ij + sum_d (sum_n (q_i * k_n) H1_ind) H2_ijd``.

    Args:
        basic: P, ``[c, N, N]``.
        encode: H1, ``[c, D, N, N]``, the Hadamard relations of a query as D numbers.
        decode: H2, ``[D, N, N]``.
        context: G, ``[c, N, N]``.
    """
    pattern = torch.einsum("bhic,bhcdi->bhdi", query, torch.einsum("bhnc,cdin->bhcdi", key, encode))
    kernel = torch.einsum("bhic,cij->bhij", query, basic) + torch.einsum("bhdi,dij->bhij", pattern, decode)
    y = kernel @ value
    return y + torch.einsum("bhiv,bhivw->bhiw", y, torch.einsum("bhjv,wij->bhivw", value, context))
