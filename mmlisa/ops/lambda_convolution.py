"""Lambda convolution (Bello, "LambdaNetworks", 2021) with a global receptive field.

Shapes: B batch, h heads, N tokens, c channels of a head; relative positions (:func:`mmlisa.ops.toeplitz`) are shared by the
heads.
"""

import torch
from torch import Tensor

from .precision import at_least_fp32, no_autocast


def lambda_convolution(query: Tensor, key: Tensor, value: Tensor, relative: Tensor) -> Tensor:
    """Every query is multiplied by a matrix made of its context: ``y_i = q_i (softmax(K)^T V + E_i^T V)``.

    Args:
        query, key, value: ``[B, h, N, c]``; the softmax runs over the tokens.
        relative: ``[c, N, N]``, E: entry (k, i, j) weighs token j in row k of the matrix of token i.

    Returns:
        ``[B, h, N, c]``.
    """
    with no_autocast(query.device):
        query, key, value, relative = (at_least_fp32(t) for t in (query, key, value, relative))
        content = key.softmax(dim=2).transpose(2, 3) @ value
        position = torch.einsum("bhjv,kij->bhikv", value, relative)
        return query @ content + torch.einsum("bhik,bhikv->bhiv", query, position)
